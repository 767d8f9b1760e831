"""The main job: every table of desk.md 3."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "chat_pacing",
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("app_id", sa.String(length=255), nullable=False),
        sa.Column("chat_id", sa.String(length=255), nullable=False),
        sa.Column("next_free_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "app_id", "chat_id", name=op.f("pk_chat_pacing")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("subject", sa.String(length=600), nullable=False),
        sa.Column("username", sa.String(length=255), nullable=True),
        sa.Column("email", sa.String(length=320), nullable=False),
        sa.Column("display_name", sa.String(length=255), nullable=False),
        sa.Column("locale", sa.String(length=8), nullable=True),
        sa.Column("password_hash", sa.String(length=512), nullable=True),
        sa.Column("is_platform_admin", sa.Boolean(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("locale IS NULL OR locale IN ('zh', 'en')", name=op.f("ck_users_locale_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("subject", name=op.f("uq_users_subject")),
        sa.UniqueConstraint("username", name=op.f("uq_users_username")),
    )
    op.create_table(
        "workers",
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("accepting_claims", sa.Boolean(), nullable=False),
        sa.Column("outbound_started", sa.Boolean(), nullable=False),
        sa.Column("artifact_configured", sa.Boolean(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_workers")),
    )
    op.create_table(
        "workspaces",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("slug", sa.String(length=64), nullable=False),
        sa.Column("runner", sa.String(length=64), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("slug", name=op.f("uq_workspaces_slug")),
    )
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=36), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=True),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("rights", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("project_ids", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("source_application", sa.String(length=64), nullable=True),
        sa.Column("auth_method", sa.String(length=16), nullable=False),
        sa.Column("platform_admin", sa.Boolean(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "auth_method IN ('local', 'bootstrap', 'oidc')", name=op.f("ck_access_tokens_auth_method_known")
        ),
        sa.CheckConstraint("kind IN ('access', 'host', 'results')", name=op.f("ck_access_tokens_kind_known")),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name=op.f("fk_access_tokens_user")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_access_tokens_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_access_tokens_digest")),
    )
    op.create_index(op.f("ix_access_tokens_user"), "access_tokens", ["user"], unique=False)
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=36), nullable=False),
        sa.Column("auth_method", sa.String(length=16), nullable=False),
        sa.Column("csrf_digest", sa.String(length=64), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "auth_method IN ('local', 'bootstrap', 'oidc')", name=op.f("ck_console_sessions_auth_method_known")
        ),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name=op.f("fk_console_sessions_user")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_console_sessions")),
        sa.UniqueConstraint("digest", name=op.f("uq_console_sessions_digest")),
    )
    op.create_index(op.f("ix_console_sessions_user"), "console_sessions", ["user"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("object_kind", sa.String(length=32), nullable=False),
        sa.Column("object_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=36), nullable=True),
        sa.Column("owner_user", sa.String(length=36), nullable=True),
        sa.Column("reply_grant", sa.String(length=36), nullable=True),
        sa.Column("actor", sa.String(length=36), nullable=True),
        sa.Column("code", sa.String(length=96), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("length(kind) > 0", name=op.f("ck_events_kind_named")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_events_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_reply_grant_id", "events", ["reply_grant", "id"], unique=False)
    op.create_index("ix_events_workspace_id", "events", ["workspace", "id"], unique=False)
    op.create_table(
        "installations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("channel", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("app_id", sa.String(length=255), nullable=False),
        sa.Column("tenant_key", sa.String(length=255), nullable=False),
        sa.Column("inbound", sa.String(length=16), nullable=False),
        sa.Column("app_secret_ct", sa.Text(), nullable=True),
        sa.Column("encrypt_key_ct", sa.Text(), nullable=True),
        sa.Column("verification_token_ct", sa.Text(), nullable=True),
        sa.Column("target_url", sa.Text(), nullable=True),
        sa.Column("command_language", sa.String(length=8), nullable=False),
        sa.Column("provider_zone", sa.String(length=64), nullable=True),
        sa.Column("late_answers_enabled", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("config_revision", sa.Integer(), nullable=False),
        sa.Column("bot_open_id", sa.String(length=255), nullable=True),
        sa.Column("lease_owner", sa.String(length=64), nullable=True),
        sa.Column("lease_generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("last_ready_at", sa.BigInteger(), nullable=True),
        sa.Column("last_error_code", sa.String(length=96), nullable=True),
        sa.Column("last_error_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(length=36), nullable=True),
        sa.CheckConstraint("command_language IN ('zh', 'en')", name=op.f("ck_installations_command_language_known")),
        sa.CheckConstraint("inbound IN ('webhook', 'long_connection')", name=op.f("ck_installations_inbound_known")),
        sa.CheckConstraint("status IN ('active', 'disabled', 'revoked')", name=op.f("ck_installations_status_known")),
        sa.CheckConstraint("config_revision >= 1", name=op.f("ck_installations_config_revision_positive")),
        sa.CheckConstraint("lease_generation >= 0", name=op.f("ck_installations_lease_generation_not_negative")),
        sa.ForeignKeyConstraint(["revoked_by"], ["users.id"], name=op.f("fk_installations_revoked_by")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_installations_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installations")),
        sa.UniqueConstraint(
            "workspace",
            "channel",
            "tenant_key",
            "app_id",
            name=op.f("uq_installations_workspace_channel_tenant_key_app_id"),
        ),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("slug", sa.String(length=64), nullable=False),
        sa.Column("access", sa.String(length=16), nullable=False),
        sa.Column("runner", sa.String(length=64), nullable=True),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("access IN ('members', 'administrators')", name=op.f("ck_projects_access_known")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_projects_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("workspace", "slug", name=op.f("uq_projects_workspace_slug")),
    )
    op.create_table(
        "workspace_members",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("user", sa.String(length=36), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.CheckConstraint(
            "role IN ('admin', 'maintainer', 'operator', 'viewer')", name=op.f("ck_workspace_members_role_known")
        ),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name=op.f("fk_workspace_members_user")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_workspace_members_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspace_members")),
        sa.UniqueConstraint("workspace", "user", name=op.f("uq_workspace_members_workspace_user")),
    )
    op.create_index(op.f("ix_workspace_members_user"), "workspace_members", ["user"], unique=False)
    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("project", sa.String(length=36), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=True),
        sa.Column("artifact_key", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("media_type", sa.String(length=127), nullable=False),
        sa.Column("payload", sa.Text(), nullable=True),
        sa.Column("content_ref", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_artifacts_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("session", "artifact_key", name=op.f("uq_artifacts_session_artifact_key")),
    )
    op.create_index(op.f("ix_artifacts_project"), "artifacts", ["project"], unique=False)
    op.create_table(
        "binding_challenges",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("installation", sa.String(length=36), nullable=False),
        sa.Column("user", sa.String(length=36), nullable=False),
        sa.Column("code_digest", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("consumed_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["installation"], ["installations.id"], name=op.f("fk_binding_challenges_installation")
        ),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name=op.f("fk_binding_challenges_user")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_binding_challenges")),
        sa.UniqueConstraint("code_digest", name=op.f("uq_binding_challenges_code_digest")),
    )
    op.create_table(
        "bindings",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("installation", sa.String(length=36), nullable=False),
        sa.Column("user", sa.String(length=36), nullable=False),
        sa.Column("tenant_key", sa.String(length=255), nullable=False),
        sa.Column("sender_id", sa.String(length=255), nullable=False),
        sa.Column("chat_id", sa.String(length=255), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(length=36), nullable=True),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_bindings_revision_positive")),
        sa.ForeignKeyConstraint(["installation"], ["installations.id"], name=op.f("fk_bindings_installation")),
        sa.ForeignKeyConstraint(["revoked_by"], ["users.id"], name=op.f("fk_bindings_revoked_by")),
        sa.ForeignKeyConstraint(["user"], ["users.id"], name=op.f("fk_bindings_user")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bindings")),
        sa.UniqueConstraint(
            "installation",
            "user",
            "tenant_key",
            "sender_id",
            name=op.f("uq_bindings_installation_user_tenant_key_sender_id"),
        ),
    )
    op.create_index(
        "uq_bindings_active_sender",
        "bindings",
        ["installation", "tenant_key", "sender_id"],
        unique=True,
        sqlite_where=sa.text("active = 1"),
        postgresql_where=sa.text("active"),
    )
    op.create_index(
        "uq_bindings_active_user",
        "bindings",
        ["installation", "user"],
        unique=True,
        sqlite_where=sa.text("active = 1"),
        postgresql_where=sa.text("active"),
    )
    op.create_table(
        "conversations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("owner_user", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=36), nullable=True),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("context", sa.JSON(), nullable=False),
        sa.Column("context_hash", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("session_number", sa.Integer(), nullable=False),
        sa.Column("session_start_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("status IN ('active', 'closed')", name=op.f("ck_conversations_status_known")),
        sa.CheckConstraint("revision >= 0", name=op.f("ck_conversations_revision_not_negative")),
        sa.CheckConstraint("session_number >= 1", name=op.f("ck_conversations_session_number_positive")),
        sa.ForeignKeyConstraint(["owner_user"], ["users.id"], name=op.f("fk_conversations_owner_user")),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_conversations_project")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_conversations_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
    )
    op.create_index(
        "ix_conversations_owner", "conversations", ["workspace", "owner_user", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_conversations_workspace"), "conversations", ["workspace"], unique=False)
    op.create_table(
        "workflows",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("project", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_workflows_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflows")),
        sa.UniqueConstraint("project", "name", name=op.f("uq_workflows_project_name")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=36), nullable=False),
        sa.Column("workflow", sa.String(length=36), nullable=False),
        sa.Column("parent_run", sa.String(length=36), nullable=True),
        sa.Column("started_by", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("create_request_hash", sa.String(length=64), nullable=False),
        sa.Column("input", sa.JSON(), nullable=False),
        sa.Column("origin_conversation", sa.String(length=36), nullable=True),
        sa.Column("origin_revision", sa.BigInteger(), nullable=True),
        sa.Column("origin_user", sa.String(length=36), nullable=True),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(origin_conversation IS NULL AND origin_revision IS NULL AND origin_user IS NULL) OR (origin_conversation IS NOT NULL AND origin_revision IS NOT NULL AND origin_user IS NOT NULL)",
            name=op.f("ck_runs_origin_whole"),
        ),
        sa.ForeignKeyConstraint(
            ["origin_conversation"], ["conversations.id"], name=op.f("fk_runs_origin_conversation")
        ),
        sa.ForeignKeyConstraint(["origin_user"], ["users.id"], name=op.f("fk_runs_origin_user")),
        sa.ForeignKeyConstraint(["parent_run"], ["runs.id"], name=op.f("fk_runs_parent_run")),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_runs_project")),
        sa.ForeignKeyConstraint(["started_by"], ["users.id"], name=op.f("fk_runs_started_by")),
        sa.ForeignKeyConstraint(["workflow"], ["workflows.id"], name=op.f("fk_runs_workflow")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_runs_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint(
            "workflow", "started_by", "request_id", name=op.f("uq_runs_workflow_started_by_request_id")
        ),
    )
    op.create_index("ix_runs_project", "runs", ["project", "created_at", "id"], unique=False)
    op.create_table(
        "turns",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("conversation", sa.String(length=36), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("surface", sa.String(length=16), nullable=False),
        sa.Column("user_content", sa.Text(), nullable=False),
        sa.Column("response", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("context_snapshot", sa.JSON(), nullable=False),
        sa.Column("tool_trace", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("runner", sa.JSON(), nullable=False),
        sa.Column("error_code", sa.String(length=96), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("committed_revision", sa.BigInteger(), nullable=True),
        sa.Column("lease_owner", sa.String(length=64), nullable=True),
        sa.Column("lease_generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'completed', 'proposal', 'failed')", name=op.f("ck_turns_status_known")
        ),
        sa.CheckConstraint("surface IN ('console', 'api', 'channel')", name=op.f("ck_turns_surface_known")),
        sa.CheckConstraint("lease_generation >= 0", name=op.f("ck_turns_lease_generation_not_negative")),
        sa.CheckConstraint("length(request_id) BETWEEN 1 AND 64", name=op.f("ck_turns_request_id_length")),
        sa.CheckConstraint("sequence > 0", name=op.f("ck_turns_sequence_positive")),
        sa.ForeignKeyConstraint(["conversation"], ["conversations.id"], name=op.f("fk_turns_conversation")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turns")),
        sa.UniqueConstraint("conversation", "request_id", name=op.f("uq_turns_conversation_request_id")),
        sa.UniqueConstraint("conversation", "sequence", name=op.f("uq_turns_conversation_sequence")),
    )
    op.create_index("ix_turns_lapsing", "turns", ["status", "lease_expires_at"], unique=False)
    op.create_index(
        "uq_turns_one_running",
        "turns",
        ["conversation"],
        unique=True,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_table(
        "artifact_producers",
        sa.Column("artifact", sa.String(length=36), nullable=False),
        sa.Column("run", sa.String(length=36), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["artifact"], ["artifacts.id"], name=op.f("fk_artifact_producers_artifact")),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_artifact_producers_run")),
        sa.PrimaryKeyConstraint("artifact", "run", name=op.f("pk_artifact_producers")),
    )
    op.create_table(
        "proposals",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("conversation", sa.String(length=36), nullable=False),
        sa.Column("turn", sa.String(length=36), nullable=False),
        sa.Column("tool", sa.String(length=128), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("diff", sa.Text(), nullable=True),
        sa.Column("target_kind", sa.String(length=64), nullable=False),
        sa.Column("target_id", sa.String(length=64), nullable=False),
        sa.Column("target_version", sa.BigInteger(), nullable=False),
        sa.Column("permission_version", sa.BigInteger(), nullable=False),
        sa.Column("required_permission", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("actor_user", sa.String(length=36), nullable=False),
        sa.Column("actor_method", sa.String(length=16), nullable=False),
        sa.Column("decided_by", sa.String(length=36), nullable=True),
        sa.Column("decided_at", sa.BigInteger(), nullable=True),
        sa.Column("decision_reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "actor_method IN ('local', 'bootstrap', 'oidc', 'connector')", name=op.f("ck_proposals_actor_method_known")
        ),
        sa.CheckConstraint("status IN ('open', 'applied', 'refused', 'stale')", name=op.f("ck_proposals_status_known")),
        sa.CheckConstraint("version >= 1", name=op.f("ck_proposals_version_positive")),
        sa.ForeignKeyConstraint(["actor_user"], ["users.id"], name=op.f("fk_proposals_actor_user")),
        sa.ForeignKeyConstraint(["conversation"], ["conversations.id"], name=op.f("fk_proposals_conversation")),
        sa.ForeignKeyConstraint(["decided_by"], ["users.id"], name=op.f("fk_proposals_decided_by")),
        sa.ForeignKeyConstraint(["turn"], ["turns.id"], name=op.f("fk_proposals_turn")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_proposals_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proposals")),
        sa.UniqueConstraint("turn", name=op.f("uq_proposals_turn")),
    )
    op.create_index(op.f("ix_proposals_conversation"), "proposals", ["conversation"], unique=False)
    op.create_index(op.f("ix_proposals_workspace"), "proposals", ["workspace"], unique=False)
    op.create_table(
        "reply_grants",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("installation", sa.String(length=36), nullable=False),
        sa.Column("binding", sa.String(length=36), nullable=False),
        sa.Column("bound_user", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=36), nullable=False),
        sa.Column("workflow", sa.String(length=36), nullable=True),
        sa.Column("run", sa.String(length=36), nullable=True),
        sa.Column("conversation", sa.String(length=36), nullable=False),
        sa.Column("context_hash", sa.String(length=64), nullable=False),
        sa.Column("binding_revision", sa.Integer(), nullable=False),
        sa.Column("chat_id", sa.String(length=255), nullable=False),
        sa.Column("created_by", sa.String(length=36), nullable=False),
        sa.Column("create_request_id", sa.String(length=64), nullable=False),
        sa.Column("create_request_hash", sa.String(length=64), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(length=36), nullable=True),
        sa.Column("active_slot", sa.String(length=64), nullable=True),
        sa.CheckConstraint(
            "(status = 'active') = (active_slot IS NOT NULL)", name=op.f("ck_reply_grants_slot_follows_status")
        ),
        sa.CheckConstraint("version >= 1", name=op.f("ck_reply_grants_version_positive")),
        sa.CheckConstraint("status IN ('active', 'revoked', 'expired')", name=op.f("ck_reply_grants_status_known")),
        sa.CheckConstraint('"cursor" >= 0', name=op.f("ck_reply_grants_cursor_not_negative")),
        sa.ForeignKeyConstraint(["binding"], ["bindings.id"], name=op.f("fk_reply_grants_binding")),
        sa.ForeignKeyConstraint(["bound_user"], ["users.id"], name=op.f("fk_reply_grants_bound_user")),
        sa.ForeignKeyConstraint(["conversation"], ["conversations.id"], name=op.f("fk_reply_grants_conversation")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_reply_grants_created_by")),
        sa.ForeignKeyConstraint(["installation"], ["installations.id"], name=op.f("fk_reply_grants_installation")),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_reply_grants_project")),
        sa.ForeignKeyConstraint(["revoked_by"], ["users.id"], name=op.f("fk_reply_grants_revoked_by")),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_reply_grants_run")),
        sa.ForeignKeyConstraint(["workflow"], ["workflows.id"], name=op.f("fk_reply_grants_workflow")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_reply_grants_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reply_grants")),
        sa.UniqueConstraint("active_slot", name=op.f("uq_reply_grants_active_slot")),
        sa.UniqueConstraint(
            "workspace",
            "project",
            "created_by",
            "create_request_id",
            name=op.f("uq_reply_grants_workspace_project_created_by_create_request_id"),
        ),
    )
    op.create_index("ix_reply_grants_chat", "reply_grants", ["installation", "chat_id", "status"], unique=False)
    op.create_index("ix_reply_grants_conversation", "reply_grants", ["conversation", "created_at", "id"], unique=False)
    op.create_index("ix_reply_grants_expiring", "reply_grants", ["status", "expires_at"], unique=False)
    op.create_table(
        "artifact_grants",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("reply_grant", sa.String(length=36), nullable=False),
        sa.Column("conversation", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=36), nullable=False),
        sa.Column("workflow", sa.String(length=36), nullable=False),
        sa.Column("run", sa.String(length=36), nullable=False),
        sa.Column("artifact", sa.String(length=36), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("media_type", sa.String(length=127), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(length=36), nullable=False),
        sa.Column("create_request_id", sa.String(length=64), nullable=False),
        sa.Column("create_request_hash", sa.String(length=64), nullable=False),
        sa.Column("claim_digest", sa.String(length=64), nullable=False),
        sa.Column("claim_ct", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("redeemed_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.String(length=96), nullable=True),
        sa.Column("active_slot", sa.String(length=64), nullable=True),
        sa.CheckConstraint(
            "(status = 'active') = (active_slot IS NOT NULL)", name=op.f("ck_artifact_grants_slot_follows_status")
        ),
        sa.CheckConstraint("version >= 1", name=op.f("ck_artifact_grants_version_positive")),
        sa.CheckConstraint(
            "status IN ('active', 'redeemed', 'revoked', 'expired', 'failed')",
            name=op.f("ck_artifact_grants_status_known"),
        ),
        sa.ForeignKeyConstraint(["artifact"], ["artifacts.id"], name=op.f("fk_artifact_grants_artifact")),
        sa.ForeignKeyConstraint(["conversation"], ["conversations.id"], name=op.f("fk_artifact_grants_conversation")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_artifact_grants_created_by")),
        sa.ForeignKeyConstraint(["project"], ["projects.id"], name=op.f("fk_artifact_grants_project")),
        sa.ForeignKeyConstraint(["reply_grant"], ["reply_grants.id"], name=op.f("fk_artifact_grants_reply_grant")),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_artifact_grants_run")),
        sa.ForeignKeyConstraint(["workflow"], ["workflows.id"], name=op.f("fk_artifact_grants_workflow")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_artifact_grants_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact_grants")),
        sa.UniqueConstraint("active_slot", name=op.f("uq_artifact_grants_active_slot")),
        sa.UniqueConstraint("claim_digest", name=op.f("uq_artifact_grants_claim_digest")),
        sa.UniqueConstraint(
            "workspace",
            "project",
            "created_by",
            "create_request_id",
            name=op.f("uq_artifact_grants_workspace_project_created_by_create_request_id"),
        ),
    )
    op.create_index("ix_artifact_grants_expiring", "artifact_grants", ["status", "expires_at"], unique=False)
    op.create_index(op.f("ix_artifact_grants_reply_grant"), "artifact_grants", ["reply_grant"], unique=False)
    op.create_table(
        "receipts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("installation", sa.String(length=36), nullable=False),
        sa.Column("provider_message_id", sa.String(length=255), nullable=False),
        sa.Column("provider_event_id", sa.String(length=255), nullable=False),
        sa.Column("transport", sa.String(length=16), nullable=False),
        sa.Column("execution", sa.String(length=16), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=True),
        sa.Column("tenant_key", sa.String(length=255), nullable=False),
        sa.Column("sender_id", sa.String(length=255), nullable=False),
        sa.Column("chat_id", sa.String(length=255), nullable=False),
        sa.Column("parent_message_id", sa.String(length=255), nullable=True),
        sa.Column("root_message_id", sa.String(length=255), nullable=True),
        sa.Column("provider_created_at", sa.BigInteger(), nullable=False),
        sa.Column("content_text", sa.Text(), nullable=True),
        sa.Column("intent", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("error_code", sa.String(length=96), nullable=True),
        sa.Column("binding", sa.String(length=36), nullable=True),
        sa.Column("conversation", sa.String(length=36), nullable=True),
        sa.Column("reply_grant", sa.String(length=36), nullable=True),
        sa.Column("artifact_grant", sa.String(length=36), nullable=True),
        sa.Column("turn", sa.String(length=36), nullable=True),
        sa.Column("lease_owner", sa.String(length=64), nullable=True),
        sa.Column("lease_generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("processing_started_at", sa.BigInteger(), nullable=True),
        sa.Column("processed_at", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_at", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.String(length=36), nullable=True),
        sa.Column("acknowledged_reason", sa.String(length=1000), nullable=True),
        sa.Column("purged_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("execution IN ('work', 'answer_only')", name=op.f("ck_receipts_execution_known")),
        sa.CheckConstraint(
            "intent IN ('binding', 'reply', 'artifact_claim', 'control')", name=op.f("ck_receipts_intent_known")
        ),
        sa.CheckConstraint(
            "status IN ('received', 'processing', 'completed', 'proposal', 'rejected', 'retryable_failed', 'permanent_failed')",
            name=op.f("ck_receipts_status_known"),
        ),
        sa.CheckConstraint(
            "transport IN ('webhook', 'long_connection', 'history')", name=op.f("ck_receipts_transport_known")
        ),
        sa.CheckConstraint("attempt_count >= 0", name=op.f("ck_receipts_attempt_count_not_negative")),
        sa.CheckConstraint("lease_generation >= 0", name=op.f("ck_receipts_lease_generation_not_negative")),
        sa.ForeignKeyConstraint(["acknowledged_by"], ["users.id"], name=op.f("fk_receipts_acknowledged_by")),
        sa.ForeignKeyConstraint(["artifact_grant"], ["artifact_grants.id"], name=op.f("fk_receipts_artifact_grant")),
        sa.ForeignKeyConstraint(["binding"], ["bindings.id"], name=op.f("fk_receipts_binding")),
        sa.ForeignKeyConstraint(["conversation"], ["conversations.id"], name=op.f("fk_receipts_conversation")),
        sa.ForeignKeyConstraint(["installation"], ["installations.id"], name=op.f("fk_receipts_installation")),
        sa.ForeignKeyConstraint(["reply_grant"], ["reply_grants.id"], name=op.f("fk_receipts_reply_grant")),
        sa.ForeignKeyConstraint(["turn"], ["turns.id"], name=op.f("fk_receipts_turn")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_receipts_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receipts")),
        sa.UniqueConstraint(
            "installation", "provider_message_id", name=op.f("uq_receipts_installation_provider_message_id")
        ),
    )
    op.create_index("ix_receipts_arrival", "receipts", ["reply_grant", "status", "created_at", "id"], unique=False)
    op.create_index("ix_receipts_due", "receipts", ["status", "not_before"], unique=False)
    op.create_index("ix_receipts_lapsing", "receipts", ["status", "lease_expires_at"], unique=False)
    op.create_index("ix_receipts_listed", "receipts", ["workspace", "created_at", "id"], unique=False)
    op.create_index("ix_receipts_sender", "receipts", ["installation", "sender_id", "created_at"], unique=False)
    op.create_index(
        "uq_receipts_one_in_work",
        "receipts",
        ["reply_grant"],
        unique=True,
        sqlite_where=sa.text("status = 'processing'"),
        postgresql_where=sa.text("status = 'processing'"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(length=36), nullable=False),
        sa.Column("operation_id", sa.String(length=64), nullable=False),
        sa.Column("provider_uuid", sa.String(length=50), nullable=False),
        sa.Column("installation", sa.String(length=36), nullable=False),
        sa.Column("reply_grant", sa.String(length=36), nullable=False),
        sa.Column("artifact_grant", sa.String(length=36), nullable=True),
        sa.Column("receipt", sa.String(length=36), nullable=True),
        sa.Column("purpose", sa.String(length=24), nullable=False),
        sa.Column("chat_id", sa.String(length=255), nullable=False),
        sa.Column("reply_to_message_id", sa.String(length=255), nullable=True),
        sa.Column("payload_kind", sa.String(length=16), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("payload_bytes", sa.LargeBinary(), nullable=True),
        sa.Column("file_name", sa.String(length=255), nullable=True),
        sa.Column("media_type", sa.String(length=127), nullable=True),
        sa.Column("template_version", sa.Integer(), nullable=False),
        sa.Column("payload_hash", sa.String(length=64), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=24), nullable=False),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.String(length=64), nullable=True),
        sa.Column("lease_generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_expires_at", sa.BigInteger(), nullable=True),
        sa.Column("upload_key", sa.String(length=255), nullable=True),
        sa.Column("sending_at", sa.BigInteger(), nullable=True),
        sa.Column("provider_message_id", sa.String(length=255), nullable=True),
        sa.Column("provider_created_ms", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.String(length=96), nullable=True),
        sa.Column("provider_code", sa.BigInteger(), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("read_back_due_at", sa.BigInteger(), nullable=True),
        sa.Column("read_back_attempts", sa.Integer(), nullable=False),
        sa.Column("read_back_at", sa.BigInteger(), nullable=True),
        sa.Column("read_back_result", sa.String(length=16), nullable=True),
        sa.Column("proved_by", sa.String(length=16), nullable=True),
        sa.Column("dedupe_key", sa.String(length=64), nullable=False),
        sa.Column("artifact_slot", sa.String(length=64), nullable=True),
        sa.Column("acknowledged_at", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.String(length=36), nullable=True),
        sa.Column("acknowledged_reason", sa.String(length=1000), nullable=True),
        sa.Column("purged_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "payload_kind IN ('text', 'file', 'artifact_offer')", name=op.f("ck_deliveries_payload_kind_known")
        ),
        sa.CheckConstraint("proved_by IS NULL OR proved_by IN ('history')", name=op.f("ck_deliveries_proved_by_known")),
        sa.CheckConstraint(
            "purpose IN ('activation', 'agent_reply', 'proposal_notice', 'failure_notice', 'artifact_offer', 'artifact_delivery')",
            name=op.f("ck_deliveries_purpose_known"),
        ),
        sa.CheckConstraint(
            "read_back_result IS NULL OR read_back_result IN ('found', 'absent', 'differs', 'unknown')",
            name=op.f("ck_deliveries_read_back_result_known"),
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'connecting', 'sending', 'sent', 'retryable_failed', 'failed', 'indeterminate', 'settled_sent', 'settled_not_sent')",
            name=op.f("ck_deliveries_status_known"),
        ),
        sa.CheckConstraint("attempt_count >= 0", name=op.f("ck_deliveries_attempt_count_not_negative")),
        sa.CheckConstraint("lease_generation >= 0", name=op.f("ck_deliveries_lease_generation_not_negative")),
        sa.CheckConstraint(
            "payload_bytes IS NULL OR length(payload_bytes) <= 1048576", name=op.f("ck_deliveries_payload_bounded")
        ),
        sa.ForeignKeyConstraint(["acknowledged_by"], ["users.id"], name=op.f("fk_deliveries_acknowledged_by")),
        sa.ForeignKeyConstraint(["artifact_grant"], ["artifact_grants.id"], name=op.f("fk_deliveries_artifact_grant")),
        sa.ForeignKeyConstraint(["installation"], ["installations.id"], name=op.f("fk_deliveries_installation")),
        sa.ForeignKeyConstraint(["receipt"], ["receipts.id"], name=op.f("fk_deliveries_receipt")),
        sa.ForeignKeyConstraint(["reply_grant"], ["reply_grants.id"], name=op.f("fk_deliveries_reply_grant")),
        sa.ForeignKeyConstraint(["workspace"], ["workspaces.id"], name=op.f("fk_deliveries_workspace")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("artifact_slot", name=op.f("uq_deliveries_artifact_slot")),
        sa.UniqueConstraint("dedupe_key", name=op.f("uq_deliveries_dedupe_key")),
        sa.UniqueConstraint(
            "installation", "provider_message_id", name=op.f("uq_deliveries_installation_provider_message_id")
        ),
        sa.UniqueConstraint("operation_id", name=op.f("uq_deliveries_operation_id")),
        sa.UniqueConstraint("provider_uuid", name=op.f("uq_deliveries_provider_uuid")),
        sa.UniqueConstraint("receipt", name=op.f("uq_deliveries_receipt")),
    )
    op.create_index("ix_deliveries_due", "deliveries", ["status", "not_before"], unique=False)
    op.create_index("ix_deliveries_grant", "deliveries", ["reply_grant", "created_at", "id"], unique=False)
    op.create_index("ix_deliveries_lapsing", "deliveries", ["status", "lease_expires_at"], unique=False)
    op.create_index("ix_deliveries_chat", "deliveries", ["installation", "chat_id", "status"], unique=False)
    op.create_index("ix_deliveries_listed", "deliveries", ["workspace", "created_at", "id"], unique=False)
    op.create_table(
        "settlements",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("delivery", sa.String(length=36), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=False),
        sa.Column("reason", sa.String(length=1000), nullable=False),
        sa.Column("actor_user", sa.String(length=36), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "outcome IN ('settled_sent', 'settled_not_sent')", name=op.f("ck_settlements_outcome_known")
        ),
        sa.CheckConstraint("length(reason) BETWEEN 1 AND 1000", name=op.f("ck_settlements_reason_length")),
        sa.ForeignKeyConstraint(["actor_user"], ["users.id"], name=op.f("fk_settlements_actor_user")),
        sa.ForeignKeyConstraint(["delivery"], ["deliveries.id"], name=op.f("fk_settlements_delivery")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_settlements")),
        sa.UniqueConstraint("delivery", name=op.f("uq_settlements_delivery")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("settlements")
    op.drop_index("ix_deliveries_chat", table_name="deliveries")
    op.drop_index("ix_deliveries_listed", table_name="deliveries")
    op.drop_index("ix_deliveries_lapsing", table_name="deliveries")
    op.drop_index("ix_deliveries_grant", table_name="deliveries")
    op.drop_index("ix_deliveries_due", table_name="deliveries")
    op.drop_table("deliveries")
    op.drop_index(
        "uq_receipts_one_in_work",
        table_name="receipts",
        sqlite_where=sa.text("status = 'processing'"),
        postgresql_where=sa.text("status = 'processing'"),
    )
    op.drop_index("ix_receipts_sender", table_name="receipts")
    op.drop_index("ix_receipts_listed", table_name="receipts")
    op.drop_index("ix_receipts_lapsing", table_name="receipts")
    op.drop_index("ix_receipts_due", table_name="receipts")
    op.drop_index("ix_receipts_arrival", table_name="receipts")
    op.drop_table("receipts")
    op.drop_index(op.f("ix_artifact_grants_reply_grant"), table_name="artifact_grants")
    op.drop_index("ix_artifact_grants_expiring", table_name="artifact_grants")
    op.drop_table("artifact_grants")
    op.drop_index("ix_reply_grants_expiring", table_name="reply_grants")
    op.drop_index("ix_reply_grants_conversation", table_name="reply_grants")
    op.drop_index("ix_reply_grants_chat", table_name="reply_grants")
    op.drop_table("reply_grants")
    op.drop_index(op.f("ix_proposals_workspace"), table_name="proposals")
    op.drop_index(op.f("ix_proposals_conversation"), table_name="proposals")
    op.drop_table("proposals")
    op.drop_table("artifact_producers")
    op.drop_index(
        "uq_turns_one_running",
        table_name="turns",
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.drop_index("ix_turns_lapsing", table_name="turns")
    op.drop_table("turns")
    op.drop_index("ix_runs_project", table_name="runs")
    op.drop_table("runs")
    op.drop_table("workflows")
    op.drop_index(op.f("ix_conversations_workspace"), table_name="conversations")
    op.drop_index("ix_conversations_owner", table_name="conversations")
    op.drop_table("conversations")
    op.drop_index(
        "uq_bindings_active_user",
        table_name="bindings",
        sqlite_where=sa.text("active = 1"),
        postgresql_where=sa.text("active"),
    )
    op.drop_index(
        "uq_bindings_active_sender",
        table_name="bindings",
        sqlite_where=sa.text("active = 1"),
        postgresql_where=sa.text("active"),
    )
    op.drop_table("bindings")
    op.drop_table("binding_challenges")
    op.drop_index(op.f("ix_artifacts_project"), table_name="artifacts")
    op.drop_table("artifacts")
    op.drop_index(op.f("ix_workspace_members_user"), table_name="workspace_members")
    op.drop_table("workspace_members")
    op.drop_table("projects")
    op.drop_table("installations")
    op.drop_index("ix_events_workspace_id", table_name="events")
    op.drop_index("ix_events_reply_grant_id", table_name="events")
    op.drop_table("events")
    op.drop_index(op.f("ix_console_sessions_user"), table_name="console_sessions")
    op.drop_table("console_sessions")
    op.drop_index(op.f("ix_access_tokens_user"), table_name="access_tokens")
    op.drop_table("access_tokens")
    op.drop_table("workspaces")
    op.drop_table("workers")
    op.drop_table("users")
    op.drop_table("chat_pacing")
