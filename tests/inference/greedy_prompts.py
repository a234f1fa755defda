"""The 24 conversations that the engine's greedy replies are compared on: languages, code, emoji, odd and long ones."""

LONG_PARAGRAPH = (
    "The lighthouse keeper wrote down the weather every evening: wind from the west, the sea grey and restless, two "
    "fishing boats late to the harbour. In the margin he kept a second list, of the ships that passed and the names "
    "painted on their bows, and of the letters that the mail boat brought on Thursdays. "
)


def _user(text: str, system: str | None = None) -> list[dict[str, str]]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": text}]


CONVERSATIONS: list[list[dict[str, str]]] = [
    # English
    _user("What is the capital of France?"),
    _user("Explain in two sentences why the sky is blue."),
    _user("Write a short poem about a river in winter."),
    _user("List five fruits and one fact about each."),
    _user("What is 17 times 23? Show your steps."),
    _user("Summarise the plot of Romeo and Juliet for a ten-year-old."),
    # Chinese
    _user("法国的首都是哪里？"),
    _user("请用三句话介绍一下长城。"),
    _user("把这句话翻译成英文：我今天很高兴认识你。"),
    # code
    _user("Write a Python function that returns the n-th Fibonacci number."),
    _user("What does this do?\n\n```c\nfor (int i = 0; i < n; i++) {\n    a[i] ^= a[n - i - 1];\n}\n```"),
    _user("SELECT name, COUNT(*) FROM users GROUP BY name HAVING COUNT(*) > 1; -- explain this query"),
    _user("Fix the bug:\n\ndef mean(xs):\n\treturn sum(xs) / len(x)\n"),
    # emoji and mixed scripts
    _user("Tell me a story with these: 🦊🌲🌙❤️‍🔥"),
    _user("What do 👩‍👩‍👧‍👦 and 🏳️‍🌈 mean?"),
    _user("Привет! Как дела? ¿Cómo estás? مرحبا"),
    # system prompts: empty, a persona, a rule
    _user("Who are you?", system=""),
    _user("Who are you?", system="You are a pirate who answers in one line."),
    _user("Name a colour.", system="Answer with a single word."),
    # several turns
    [
        {"role": "user", "content": "My name is Ada and I like chess."},
        {"role": "assistant", "content": "Nice to meet you, Ada! Chess is a wonderful game."},
        {"role": "user", "content": "What is my name and what do I like?"},
    ],
    # odd shapes
    _user("a"),
    _user("   leading and trailing blanks   \n\n\n"),
    _user("1234567890 " * 40),
    # over 1,000 tokens
    _user(LONG_PARAGRAPH * 16 + "\n\nWhat did the keeper write in the margin?"),
]
