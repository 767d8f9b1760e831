"""Every sentence of the chat page, English and Chinese."""

from __future__ import annotations

_TEXTS: dict[str, tuple[str, str]] = {
    "title": ("Frontdesk simulator", "Frontdesk 模拟器"),
    "chats": ("Chats", "会话"),
    "setup": ("Apps & set-up", "应用与设置"),
    "back": ("Back to the chat", "返回会话"),
    "tagline": (
        "A stand-in for Feishu/Lark on this machine. Nothing here leaves it.",
        "本机上的飞书/Lark 替身，内容不会离开本机。",
    ),
    "private_chat": ("Private chat with", "私聊："),
    "hint_reply": (
        "Writing as {name}. Replies aim at the bot's newest message.",
        "以 {name} 的身份发言，回复机器人的最新消息。",
    ),
    "hint_new": ("Writing as {name}. The bot has not written yet.", "以 {name} 的身份发言，机器人尚未发言。"),
    "replying_to": ("Replying to {name}", "回复 {name}"),
    "as_new": ("Send as a new message, without replying", "作为新消息发送，不回复"),
    "cancel": ("Cancel", "取消"),
    "message_label": ("Message", "消息"),
    "message_placeholder": ("Write to {name}…", "发消息给 {name}…"),
    "send": ("Send", "发送"),
    "editing": ("Editing your message", "正在编辑您的消息"),
    "save": ("Save", "保存"),
    "reply": ("Reply", "回复"),
    "edit": ("Edit", "编辑"),
    "recall": ("Recall", "撤回"),
    "open": ("Open", "打开"),
    "download": ("Download", "下载"),
    "push_again": ("Push again now", "立即重新推送"),
    "recalled": ("This message was recalled", "此消息已撤回"),
    "edited": ("edited", "已编辑"),
    "you": ("You", "您"),
    "quote_gone": ("A message that is not here", "消息不在此处"),
    "earlier": ("Show earlier messages", "显示更早的消息"),
    "state_sending": ("On its way to Frontdesk…", "正在送达 Frontdesk…"),
    "state_delivered_one": ("Delivered to Frontdesk: 200 after 1 try", "已送达 Frontdesk：第 1 次即返回 200"),
    "state_delivered_many": (
        "Delivered to Frontdesk: 200 after {tries} tries",
        "已送达 Frontdesk：第 {tries} 次返回 200",
    ),
    "state_waiting": (
        "Not accepted yet ({why}). Waiting for redelivery at {time}.",
        "尚未接收（{why}），将于 {time} 重新推送。",
    ),
    "state_failed": ("Given up after {tries} tries ({why}).", "{tries} 次后放弃（{why}）。"),
    "state_dropped": ("Not pushed: a fault drops it.", "未推送：被故障设置丢弃。"),
    "state_held": ("Held back by a fault.", "被故障设置暂缓。"),
    "state_answer_dropped": (
        "Arrived here, but its sender was never told (fault).",
        "已到达，但发送方未收到回应（故障）。",
    ),
    "recall_pushed": ("Recall:", "撤回通知："),
    "why_status": ("answered {status}", "返回 {status}"),
    "why_unreachable": ("no callback address is set", "尚未设置回调地址"),
    "empty_chat_title": ("Say hello to {name}", "向 {name} 打个招呼"),
    "empty_chat_text": (
        (
            "Messages you send here are pushed to Frontdesk, signed and encrypted, just as Feishu does. To link "
            "this person, paste the binding command from the Connections page of Frontdesk (it starts with "
            "/bind)."
        ),
        (
            "您在此发送的消息会像飞书一样加密签名后推送到 Frontdesk。要绑定此人，请粘贴 Frontdesk 连接页面给出的"
            "绑定命令（以 /bind 开头）。"
        ),
    ),
    "no_app_title": ("Start with an app", "先创建一个应用"),
    "no_app_text": (
        (
            "An app is the bot that Frontdesk answers with. Create one, then copy its values into a new "
            "connection in Frontdesk."
        ),
        "应用就是 Frontdesk 用来回答的机器人。先创建一个，再把它的参数填入 Frontdesk 的新连接。",
    ),
    "no_person_title": ("Who is writing?", "谁在发言？"),
    "no_person_text": (
        "Add a person; each one has a private chat with the bot.",
        "添加一个人；每个人与机器人各有一个私聊。",
    ),
    "app_name": ("Name of the app", "应用名称"),
    "create_app": ("Create app", "创建应用"),
    "person_name": ("Name of the person", "人员姓名"),
    "add_person": ("Add person", "添加人员"),
    "new_person_for": ("New person for {name}", "为 {name} 添加人员"),
    "credentials": ("Credentials for the connection in Frontdesk", "用于 Frontdesk 连接的凭据"),
    "app_id": ("App ID", "App ID"),
    "app_secret": ("App Secret", "App Secret"),
    "encrypt_key": ("Encrypt Key", "Encrypt Key"),
    "verification_token": ("Verification Token", "Verification Token"),
    "tenant_key": ("Tenant Key", "Tenant Key"),
    "callback": ("Callback address", "回调地址"),
    "callback_hint": (
        "The address that Frontdesk shows for the connection. It is checked when you save it.",
        "Frontdesk 连接页面显示的地址，保存时会进行校验。",
    ),
    "check": ("Save and check", "保存并校验"),
    "callback_ok": ("Checked: the address answered the challenge.", "校验通过：该地址正确应答了校验请求。"),
    "callback_bad": ("The check failed: {why}.", "校验失败：{why}。"),
    "callback_none": ("No callback address yet. Messages wait until there is one.", "尚无回调地址，消息会等待。"),
    "people": ("People", "人员"),
    "open_chat": ("Open chat", "打开会话"),
    "add_app": ("Add another app", "再添加一个应用"),
    "message_title": ("Message from {name}", "来自 {name} 的消息"),
    "raw": ("As the provider stores it", "平台存储的原始内容"),
    "offline": ("The simulator does not answer. Is it still running?", "模拟器没有响应，是否仍在运行？"),
    "skip": ("Skip to the message box", "跳到输入框"),
    "no_messages": ("No messages yet", "暂无消息"),
}


class Texts:
    """The sentences of one language; ``texts("key", name=…)`` fills the blanks."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._index = 1 if language == "zh" else 0

    def __call__(self, key: str, **blanks: object) -> str:
        """The sentence for ``key``; an unknown key is a programming error and raises."""
        return _TEXTS[key][self._index].format(**blanks)


def preferred(accept_language: str) -> Texts:
    """The language a browser asks for: Chinese where it ranks before English, else English."""
    best, best_rank = "en", 0.0
    for part in accept_language.split(","):
        tag, _, weight = part.strip().partition(";q=")
        primary = tag.lower().partition("-")[0]
        try:
            rank = float(weight) if weight else 1.0
        except ValueError:
            continue
        if primary in ("en", "zh") and rank > best_rank:
            best, best_rank = primary, rank
    return Texts(best)
