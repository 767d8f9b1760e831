async def test_way(desk):
    seat = await desk.seat()
    row = await desk.ask("hello", seat)
    assert row["status"] == "received", row
    assert await desk.work() == 1
    assert await desk.send() == 1
    row = await desk.row("receipts", row["id"])
    assert row["status"] == "completed"
    (turn,) = await desk.rows("turns")
    assert turn["status"] == "completed"
    assert len(desk.channel.sent) == 1
    assert desk.channel.sent[0].reply_to == row["provider_message_id"]
    v = await desk.view(seat.grant_id)
    assert v.unusable_reason is None and v.grant.cursor == 1
