"""The published check values (desk.md 1.4), as literals, from the functions that the product itself calls.

The channel's V12 and V13 stand in tests/channels/test_verify.py; V2 and V6 wait for their room.
"""

from __future__ import annotations

import json

from frontdesk.channels.feishu.normalise import request_hash
from frontdesk.channels.loopback.signature import key_of, signature
from frontdesk.desk.conversations.context import context_hash, normalise_context
from frontdesk.desk.grants.model import create_hash, reply_slot
from frontdesk.desk.inbox.model import turn_request_id
from frontdesk.desk.outbox.snapshot import delivery_hash
from frontdesk.kernel.canonical import bytes_digest, canonical_bytes, canonical_digest
from frontdesk.kernel.oncesecret import binding_code_digest, claim_digest


def test_v1_reply_slot() -> None:
    assert reply_slot("ws-1", "conv-1", "user-1") == "d3a12b152cf4fdcebce455e0f1667c0bac12c90b059eead32758431ff303c477"


def test_v3_turn_request_id_of_feishu() -> None:
    found = turn_request_id("feishu", "inst-1", "om_1")
    assert found == "feishu:9b1d46bd4669e473afa5163e783c1939709796550f322c1fa4b18999"
    assert len(found) == 63


def test_v4_turn_request_id_of_loopback() -> None:
    found = turn_request_id("loop", "inst-1", "msg_1")
    assert found == "loop:3421df959f84f8c1f7f8d6776a04772f297476890545883185058e4c"
    assert len(found) == 61


def test_v5_reply_grant_create_hash() -> None:
    found = create_hash(
        workspace_id="ws-1",
        project_id="proj-é-项目",
        installation_id="i-1",
        binding_id="b-1",
        conversation_id="c-1",
        expires_in=604_800,
    )
    assert found == "d1249ffce005946b1d059647247d5409ba84d721f45efd5e30db2c0f0e74c233"


def test_v7_conversation_context_hash() -> None:
    context = {"workflow_id": "w-1", "run_id": None, "project_id": "proj-é-项目", "surface": "console"}
    found = context_hash(normalise_context(context))
    assert found == "b3e92a65240178d4a2abb029a8146ca9eb425a393fdedb94861168efa3245ec0"


def test_v8_inbound_message_hash() -> None:
    message = {
        "chat_id": "oc_1",
        "chat_type": "p2p",
        "message_id": "om_1",
        "message_type": "text",
        "content": '{"text":"你好 <b>"}',
        "parent_id": "om_0",
        "create_time": "1767225600000",
        "mentions": [],
        "update_time": "1767225600999",
    }
    found = request_hash("cli_1", "t-1", "ou_1", message)
    assert found == "c2e725a6eeb8e0bd0e83c47d5f8ae1039de395083d41287057ec08977b167ff5"


def test_v10_claim_digest() -> None:
    found = claim_digest("fdc_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
    assert found == "8126f640161a901172f14c8d93d7626ad7efc2ba14721b8ea047f647610fbedb"


def test_v11_binding_code_digest() -> None:
    expected = "f38a51798f5ab3f6902fe0f7c0616df07584333897698ec7568258c7e1b079b9"
    for spelling in ("fdb_0123456789ABCDEFGHJK", "fdb_0123456789abcdefghjk", "FDB_0123456789AbCdEfGhJk"):
        assert binding_code_digest(spelling) == expected


def test_v14_loopback_signature() -> None:
    key = key_of("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
    assert key == bytes(range(32))
    found = signature(key, "wh_1", "1767225600", b'{"type":"message","id":"msg_1"}')
    assert found == "v1,3Blmr7iz0wpNZGXTJToWiUYtrMjEvMrwwZEFBAiqm78="


def test_canonical_json_is_the_one_the_values_were_made_with() -> None:
    """O3 as printed in the specification, re-read in another key order, has the printed bytes."""
    printed = (
        '{"context":{"project_id":"proj-é-项目","surface":"console","workflow_id":"w-1"},'
        '"schema":"conversation-context-v1"}'
    )
    shuffled = dict(reversed(json.loads(printed).items()))
    assert canonical_bytes(shuffled) == printed.encode("utf-8")
    assert canonical_digest(shuffled) == "b3e92a65240178d4a2abb029a8146ca9eb425a393fdedb94861168efa3245ec0"


def test_v9_delivery_hash() -> None:
    payload_hash = bytes_digest("好的，<done>".encode())
    assert payload_hash == "07f6edd53d87bc037bec8da5ce8c72b3d01bb84f98d9ecee32646df09fff29c6"
    snapshot = {
        "channel": "feishu",
        "chat_id": "oc_1",
        "operation_id": "dlv-1",
        "payload_hash": payload_hash,
        "payload_kind": "text",
        "provider_uuid": "0190f7c0-0000-7000-8000-000000000001",
        "purpose": "agent_reply",
        "reply_to_message_id": "om_1",
        "template_version": 1,
    }
    assert delivery_hash(snapshot) == "07f54bf2cfaf1aecce3bcfb66bd87399ac1479e41734bd381e98f54797a71915"
