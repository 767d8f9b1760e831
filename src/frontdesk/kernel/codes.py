"""Every stable code with one sentence in English and Chinese. Data only; surfaces and docs are generated from it.

`PROBLEMS` are what an API answers, `ROW_CODES` what receipts, deliveries, grants, turns and installations keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What a problem means for the caller; each surface maps it once (HTTP status, exit code)."""

    MALFORMED = "malformed"
    INVALID = "invalid"
    TOO_LARGE = "too_large"
    MEDIA = "media"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    ABSENT = "absent"
    METHOD = "method"
    CONFLICT = "conflict"
    LIMITED = "limited"
    REFUSED = "refused"
    UPSTREAM = "upstream"
    UNAVAILABLE = "unavailable"


class Retry(StrEnum):
    """When asking again can help."""

    NEVER = "never"
    AFTER_REREAD = "after_reread"
    SAME_REQUEST = "same_request"


@dataclass(frozen=True, slots=True)
class Code:
    """One problem code."""

    code: str
    kind: Kind
    retry: Retry
    en: str
    zh: str


_N, _A, _S = Retry.NEVER, Retry.AFTER_REREAD, Retry.SAME_REQUEST

_PROBLEM_ROWS: Final = (
    ("request_invalid", Kind.INVALID, _N, "The request does not have the expected form.", "请求格式不符合要求。"),
    (
        "credential_text_refused",
        Kind.INVALID,
        _N,
        "The text looks like a credential and was not stored.",
        "文本疑似包含凭据，未保存。",
    ),
    (
        "active_reply_grants_required",
        Kind.INVALID,
        _N,
        "Say whether active reply grants are kept or revoked.",
        "请说明保留还是撤销有效的回复授权。",
    ),
    ("artifact_not_canonical", Kind.INVALID, _N, "The payload has no canonical JSON form.", "内容无法规范化为 JSON。"),
    ("callback_shape_invalid", Kind.MALFORMED, _N, "The push does not have the expected form.", "推送格式不符合要求。"),
    (
        "body_malformed",
        Kind.MALFORMED,
        _N,
        "The body is not valid JSON or its length is malformed.",
        "请求体不是有效的 JSON，或长度有误。",
    ),
    ("body_too_large", Kind.TOO_LARGE, _N, "The body is larger than allowed.", "请求体超过上限。"),
    ("input_too_long", Kind.TOO_LARGE, _N, "The message is longer than allowed.", "消息超过长度上限。"),
    ("artifact_too_large", Kind.TOO_LARGE, _N, "The artifact is larger than allowed.", "成果超过大小上限。"),
    (
        "encoding_unsupported",
        Kind.MEDIA,
        _N,
        "Only the identity content encoding is accepted.",
        "只接受未压缩的内容编码。",
    ),
    (
        "unauthenticated",
        Kind.UNAUTHENTICATED,
        _N,
        "A valid bearer token or session is needed.",
        "需要有效的令牌或会话。",
    ),
    ("login_failed", Kind.UNAUTHENTICATED, _N, "User name or password is wrong.", "用户名或密码错误。"),
    (
        "membership_required",
        Kind.FORBIDDEN,
        _N,
        "You are not an active member of this workspace.",
        "你不是该工作区的有效成员。",
    ),
    ("permission_required", Kind.FORBIDDEN, _N, "Your role does not include this right.", "你的角色没有此权限。"),
    ("administrators_only", Kind.FORBIDDEN, _N, "This project is for administrators only.", "该项目仅限管理员。"),
    (
        "platform_admin_required",
        Kind.FORBIDDEN,
        _N,
        "Only a platform administrator may do this.",
        "只有平台管理员可以执行此操作。",
    ),
    ("user_unknown", Kind.FORBIDDEN, _N, "This identity has no account here.", "该身份在此没有账户。"),
    ("host_not_allowed", Kind.FORBIDDEN, _N, "This host name is not served here.", "此主机名不在服务范围内。"),
    ("origin_not_allowed", Kind.FORBIDDEN, _N, "This origin may not send writes.", "该来源不允许写入。"),
    (
        "csrf_token_invalid",
        Kind.FORBIDDEN,
        _N,
        "The form's token is missing or not this session's; load the page again.",
        "表单令牌缺失或不属于此会话，请重新加载页面。",
    ),
    ("route_not_found", Kind.ABSENT, _N, "There is nothing at this address.", "此地址没有内容。"),
    ("method_not_allowed", Kind.METHOD, _N, "This address does not take that method.", "此地址不支持该方法。"),
    ("user_not_found", Kind.ABSENT, _N, "No such user.", "没有该用户。"),
    ("token_not_found", Kind.ABSENT, _N, "No such token.", "没有该令牌。"),
    ("workspace_not_found", Kind.ABSENT, _N, "No such workspace.", "没有该工作区。"),
    ("member_not_found", Kind.ABSENT, _N, "No such member.", "没有该成员。"),
    ("project_not_found", Kind.ABSENT, _N, "No such project.", "没有该项目。"),
    ("workflow_not_found", Kind.ABSENT, _N, "No such workflow.", "没有该工作流。"),
    ("run_not_found", Kind.ABSENT, _N, "No such run.", "没有该运行。"),
    ("conversation_not_found", Kind.ABSENT, _N, "No such conversation.", "没有该会话。"),
    ("installation_not_found", Kind.ABSENT, _N, "No such connection.", "没有该连接。"),
    ("binding_not_found", Kind.ABSENT, _N, "No such binding.", "没有该绑定。"),
    ("reply_grant_not_found", Kind.ABSENT, _N, "No such reply grant.", "没有该回复授权。"),
    ("artifact_grant_not_found", Kind.ABSENT, _N, "No such artifact grant.", "没有该成果授权。"),
    ("artifact_not_found", Kind.ABSENT, _N, "No such artifact.", "没有该成果。"),
    ("proposal_not_found", Kind.ABSENT, _N, "No such proposal.", "没有该提案。"),
    ("delivery_not_found", Kind.ABSENT, _N, "No such delivery.", "没有该投递。"),
    ("dead_letter_not_found", Kind.ABSENT, _N, "No such dead letter.", "没有该死信。"),
    ("receipt_not_found", Kind.ABSENT, _N, "No such receipt.", "没有该收件记录。"),
    ("username_taken", Kind.CONFLICT, _N, "This user name is taken.", "用户名已被占用。"),
    ("slug_taken", Kind.CONFLICT, _N, "This short name is taken.", "短名已被占用。"),
    ("name_taken", Kind.CONFLICT, _N, "This name is taken.", "名称已被占用。"),
    ("already_member", Kind.CONFLICT, _N, "This user is a member already.", "该用户已是成员。"),
    (
        "last_admin",
        Kind.CONFLICT,
        _N,
        "The last administrator of a workspace stays.",
        "工作区的最后一位管理员不能移除。",
    ),
    ("conversation_context_invalid", Kind.CONFLICT, _N, "The context does not fit together.", "上下文不一致。"),
    (
        "conversation_context_mismatch",
        Kind.CONFLICT,
        _N,
        "The conversation belongs to another context.",
        "会话属于其他上下文。",
    ),
    ("conversation_closed", Kind.CONFLICT, _N, "The conversation is closed.", "会话已关闭。"),
    ("project_context_required", Kind.CONFLICT, _N, "The conversation needs a project.", "会话需要归属项目。"),
    ("turn_open", Kind.CONFLICT, _A, "The conversation has an open turn.", "会话中有一轮正在进行。"),
    (
        "turn_failed",
        Kind.CONFLICT,
        _N,
        "This request already failed; ask again with a new one.",
        "该请求已失败；请用新请求重试。",
    ),
    (
        "idempotency_key_reused",
        Kind.CONFLICT,
        _N,
        "This request id was used with another body.",
        "该请求标识已用于其他内容。",
    ),
    ("installation_exists", Kind.CONFLICT, _N, "This app is connected already.", "该应用已连接。"),
    ("installation_not_active", Kind.CONFLICT, _A, "The connection is not active.", "连接未启用。"),
    ("installation_revoked", Kind.CONFLICT, _N, "The connection was revoked for good.", "连接已被永久撤销。"),
    ("binding_not_active", Kind.CONFLICT, _A, "The binding is not active.", "绑定未生效。"),
    (
        "active_reply_grant_exists",
        Kind.CONFLICT,
        _A,
        "An active reply grant for this conversation exists.",
        "该会话已有有效的回复授权。",
    ),
    ("reply_grant_conflict", Kind.CONFLICT, _A, "The reply grant could not be made.", "无法创建回复授权。"),
    ("reply_grant_not_active", Kind.CONFLICT, _N, "The reply grant is not active.", "回复授权未生效。"),
    ("reply_grant_stale", Kind.CONFLICT, _N, "The reply grant can no longer be used.", "回复授权已不可用。"),
    (
        "active_artifact_grant_exists",
        Kind.CONFLICT,
        _A,
        "An active grant for this artifact exists.",
        "该成果已有有效授权。",
    ),
    ("artifact_grant_conflict", Kind.CONFLICT, _A, "The artifact grant could not be made.", "无法创建成果授权。"),
    (
        "artifact_conversation_provenance_unavailable",
        Kind.CONFLICT,
        _N,
        "It is not proven which conversation this artifact comes from.",
        "无法证明该成果来自哪个会话。",
    ),
    ("proposal_changed", Kind.CONFLICT, _N, "What the proposal was about has changed.", "提案所涉及的内容已变化。"),
    ("proposal_closed", Kind.CONFLICT, _N, "The proposal is decided already.", "提案已有决定。"),
    ("delivery_not_sent", Kind.CONFLICT, _A, "The delivery has not reached the wire.", "该投递尚未发出。"),
    (
        "delivery_not_indeterminate",
        Kind.CONFLICT,
        _A,
        "Only an unknown delivery can be settled.",
        "只有结果未知的投递可以裁定。",
    ),
    ("already_settled", Kind.CONFLICT, _N, "The delivery is settled already.", "该投递已裁定。"),
    ("database_has_users", Kind.CONFLICT, _N, "The database already holds a user.", "数据库中已有用户。"),
    ("rate_limited", Kind.LIMITED, _S, "Too many requests; wait and ask again.", "请求过多，请稍后再试。"),
    ("callback_not_accepted", Kind.REFUSED, _S, "The push was not accepted.", "推送未被接受。"),
    ("internal_error", Kind.REFUSED, _S, "Something went wrong here; nothing more is said.", "服务内部出错。"),
    ("runner_failed", Kind.UPSTREAM, _N, "The answer could not be made.", "未能生成回答。"),
    (
        "unavailable",
        Kind.UNAVAILABLE,
        _S,
        "The database is busy or the sign-in service does not answer; nothing was done.",
        "数据库繁忙或登录服务无响应，未执行任何操作。",
    ),
    ("credential_unavailable", Kind.UNAVAILABLE, _A, "A secret this needs cannot be read.", "所需凭据无法读取。"),
    (
        "verification_material_unavailable",
        Kind.UNAVAILABLE,
        _A,
        "The secrets to verify pushes cannot be read.",
        "验证推送所需的凭据无法读取。",
    ),
    (
        "reply_execution_not_ready",
        Kind.UNAVAILABLE,
        _A,
        "Answers are switched off on this server.",
        "此服务器未开启回答功能。",
    ),
    (
        "artifact_delivery_not_ready",
        Kind.UNAVAILABLE,
        _A,
        "Handing over files is switched off on this server.",
        "此服务器未开启文件交付。",
    ),
    ("provider_unreachable", Kind.UNAVAILABLE, _S, "The chat provider was not reached.", "无法连接聊天平台。"),
)

RUNNER_CODES: Final[dict[str, tuple[str, str]]] = {
    "runner_not_configured": ("No model is set up here.", "此处未配置模型。"),
    "runner_unavailable": ("The model is not reachable.", "模型无法连接。"),
    "runner_auth_failed": ("The model refused our login.", "模型拒绝了登录。"),
    "runner_rate_limited": ("The model asks to come later.", "模型要求稍后再试。"),
    "runner_overloaded": ("The model is overloaded.", "模型负载过高。"),
    "runner_request_rejected": ("The model server refused the request.", "模型服务拒绝了请求。"),
    "runner_input_too_large": (
        "The question with its context is too long for the model.",
        "问题及上下文超过模型上限。",
    ),
    "runner_idle_timeout": ("The model stopped responding.", "模型长时间没有响应。"),
    "runner_hard_timeout": ("The answer took too long.", "回答用时过长。"),
    "runner_cancelled": ("The work was stopped.", "处理已停止。"),
    "runner_refused": ("The model refused to answer.", "模型拒绝回答。"),
    "runner_content_filtered": ("The provider filtered the answer.", "回答被平台过滤。"),
    "runner_output_invalid": ("The model gave no usable answer.", "模型没有给出可用的回答。"),
    "runner_output_too_large": ("The answer is too large.", "回答过大。"),
    "runner_step_limit": ("The model used too many steps.", "模型步骤过多。"),
    "runner_protocol_error": ("The agent broke its protocol.", "智能体违反了协议。"),
    "runner_exited": ("The agent's process ended.", "智能体进程已退出。"),
    "answer_only_violation": ("Something other than answering was tried.", "尝试了回答以外的操作。"),
}

ROW_CODES: Final[dict[str, tuple[str, str]]] = {
    **RUNNER_CODES,
    "installation_disabled": ("The connection is switched off.", "连接已停用。"),
    "installation_revoked": ("The connection was revoked.", "连接已撤销。"),
    "installation_identity_mismatch": ("The message came from another app or tenant.", "消息来自其他应用或租户。"),
    "timestamp_outside_window": ("The message is too old or from the future.", "消息时间超出允许范围。"),
    "unsupported_message_shape": ("Only plain text messages are taken.", "只接受纯文本消息。"),
    "principal_not_bound": ("This chat account is not bound to a person here.", "该聊天账号未绑定。"),
    "reply_target_required": ("Reply to one of the bot's messages.", "请回复机器人的某条消息。"),
    "control_target_required": ("Reply to the conversation that is meant.", "请回复所指的会话。"),
    "reply_grant_unavailable": ("There is no permission to continue a conversation here.", "此处没有可用的回复授权。"),
    "artifact_claim_invalid": ("The claim is not valid here.", "领取码在此无效。"),
    "binding_challenge_invalid": ("The binding code is not valid.", "绑定码无效。"),
    "binding_attempts_exceeded": (
        "Too many wrong binding codes; wait and try again.",
        "绑定码错误次数过多，请稍后再试。",
    ),
    "binding_principal_conflict": ("This account is bound to another person.", "该账号已绑定其他人。"),
    "sender_rate_limited": ("Too many messages in a minute.", "一分钟内消息过多。"),
    "inbox_full": ("Too many messages are waiting.", "等待处理的消息过多。"),
    "message_recalled": ("The message was recalled.", "消息已撤回。"),
    "reply_grant_busy": ("An earlier message is being answered.", "前一条消息正在处理。"),
    "conversation_busy": ("The conversation has an open turn.", "会话中有一轮正在进行。"),
    "conversation_revision_changed": ("The conversation moved on without this message.", "会话已被其他操作推进。"),
    "conversation_context_changed": ("The conversation's context changed.", "会话上下文已变化。"),
    "authorization_revoked_before_delivery": ("The permission ended before the answer left.", "回答发出前授权已失效。"),
    "agent_execution_indeterminate": (
        "It is unknown how far the work came; it was not repeated.",
        "无法确定处理进度，未重复执行。",
    ),
    "input_too_long": ("The message is too long.", "消息过长。"),
    "credential_text_refused": ("The message looks like it holds a credential.", "消息疑似包含凭据。"),
    "artifact_grant_unavailable": ("The permission to fetch this ended.", "领取授权已失效。"),
    "artifact_scope_or_hash_changed": ("The artifact is not what was authorised.", "成果与授权时不一致。"),
    "artifact_media_unsupported": ("This kind of artifact cannot be handed over.", "不支持交付此类成果。"),
    "credential_unavailable": ("A secret this needs cannot be read.", "所需凭据无法读取。"),
    "attempts_exhausted": ("It was tried too often.", "尝试次数已用尽。"),
    "connector_processing_failed": ("Processing failed.", "处理失败。"),
    "stopped_by_owner": ("The person stopped it.", "已由本人停止。"),
    "review_withdrawn": ("The reasons to answer late are gone.", "补答的依据已不存在。"),
    "connect_failed": ("The chat provider was not reached.", "无法连接聊天平台。"),
    "connect_interrupted": ("Connecting was interrupted.", "连接过程被中断。"),
    "not_sent_connection": ("No connection stood; nothing was sent.", "未建立连接，未发送。"),
    "rate_limited": ("The provider asks to come later.", "平台要求稍后再试。"),
    "provider_token_rejected": (
        "The provider's token was refused; a new one is fetched.",
        "平台令牌被拒绝，将重新获取。",
    ),
    "provider_credentials_rejected": ("The provider refuses this app's credentials.", "平台拒绝了该应用的凭据。"),
    "upload_failed": ("The file was not taken by the provider.", "平台未接受文件。"),
    "send_result_unknown": ("It is unknown whether the message arrived.", "无法确定消息是否送达。"),
    "claim_decryption_failed": ("The claim cannot be read with the present keys.", "当前密钥无法读取领取码。"),
    "target_revoked": ("The message to reply to is gone.", "被回复的消息已不存在。"),
    "permission_denied": ("The provider denies the bot this chat.", "平台不允许机器人在此发言。"),
    "format_error": ("The provider refuses the message's form.", "平台拒绝了消息格式。"),
    "not_supported": ("The channel cannot carry this.", "该渠道不支持此内容。"),
    "ssrf_blocked": ("The address is not allowed.", "地址不被允许。"),
    "answer_too_long": ("The answer is too long for the chat.", "回答超过聊天长度上限。"),
    "delivery_expired": ("It waited too long and was not sent.", "等待过久，未发送。"),
    "source_withdrawn": ("The question was withdrawn.", "问题已撤回。"),
    "source_changed": ("The question was edited.", "问题已修改。"),
    "offer_failed": ("The offer could not be delivered.", "通知未能送达。"),
    "settled_not_sent": ("A person settled it as not sent.", "已由人裁定为未发送。"),
    "interrupted": ("The server stopped while answering.", "服务在回答期间停止。"),
    "credentials_swapped": ("Encrypt key and verification token seem exchanged.", "加密密钥与校验令牌疑似互换。"),
}

UNUSABLE_REASONS: Final[dict[str, tuple[str, str]]] = {
    "expired": ("The authorisation expired.", "授权已过期。"),
    "revoked": ("The authorisation was revoked.", "授权已撤销。"),
    "installation_disabled": ROW_CODES["installation_disabled"],
    "installation_revoked": ROW_CODES["installation_revoked"],
    "credential_unavailable": ROW_CODES["credential_unavailable"],
    "binding_revoked": ("The binding was revoked.", "绑定已撤销。"),
    "conversation_closed": ("The conversation is closed.", "会话已关闭。"),
    "conversation_context_changed": ROW_CODES["conversation_context_changed"],
    "conversation_revision_changed": ROW_CODES["conversation_revision_changed"],
    "authority_lost": ("A right this needs was lost.", "所需权限已失去。"),
}

PROBLEMS: Final[dict[str, Code]] = {row[0]: Code(*row) for row in _PROBLEM_ROWS} | {
    code: Code(code, Kind.UPSTREAM, Retry.NEVER, en, zh) for code, (en, zh) in RUNNER_CODES.items()
}


def sentence(code: str, language: str) -> str:
    """The fixed sentence of a row code in `language` (zh, else en)."""
    english, chinese = ROW_CODES[code]
    return chinese if language == "zh" else english
