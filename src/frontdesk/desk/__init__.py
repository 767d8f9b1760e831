"""The people's side: conversations, connections, grants, receipts, answers and their way back."""
