"""Sixty prompts, as different as the users of a model: short and long, of several languages, code, lists, chats, and
some that begin alike, as those of one application do.
"""

SYSTEM = (
    "You are the assistant of a public library in a small town. You answer in two or three sentences, politely, and in "
    "plain words. You know the opening hours: Monday to Friday from nine to six, Saturday from ten to two, closed on "
    "Sundays and public holidays. You do not know which books are lent at the moment; for that, people ask at the desk "
    "or look into the catalogue. A card costs nothing for children and ten a year for adults. Books are lent for four "
    "weeks, films for one, and each may be renewed twice unless somebody else waits for it. If you do not know an "
    "answer, you say so and name the desk. Question of a visitor: "
)
"""About 130 tokens."""

_VISITORS = (
    "When do you open on Saturday?",
    "What does a card cost for my daughter?",
    "May I keep this novel for two months?",
    "Is the second volume there today?",
    "Do you have a room to read in?",
    "How long may I keep a film?",
    "Are you open on Sunday?",
    "Who can tell me more?",
)
_SHORT = (
    "The",
    "Hello",
    "1 + 1 =",
    "The capital of Italy is",
    "The opposite of hot is",
    "My favourite colour is",
    "In the beginning",
    "Water is made of",
    "The largest planet of the solar system is",
    "Roses are red, violets are",
    "To be, or not to be, that is",
    "A, B, C, D, E, F,",
    "Monday, Tuesday, Wednesday,",
    "2, 3, 5, 7, 11, 13,",
    "The chemical symbol of gold is",
    "Mein Name ist",
    "La capitale de la France est",
    "El perro y el gato",
    "Il était une fois",
    "東京は",
    "Привет, меня зовут",
    "مرحبا",
    "naïve café déjà",
    "🙂 🙃",
)
_MIDDLE = (
    (
        "Once upon a time there was a fisherman who lived with his wife by the sea. One day he caught a fish that "
        "could speak, and the fish said:"
    ),
    "def is_prime(n):\n    if n < 2:\n        return False\n    for i in range(2, int(n ** 0.5) + 1):\n",
    "import numpy as np\n\ndef softmax(x):\n    ",
    "SELECT name, age FROM users WHERE",
    '{"id": 1, "name": "Alice"},\n{"id": 2, "name": "Bob"},\n{"id": 3, "name":',
    "# How to make tea\n\n1. Boil the water.\n2. Put a bag of tea into a cup.\n3.",
    "<html>\n<head>\n<title>My page</title>\n</head>\n<body>\n<h1>",
    (
        "Question: What is the boiling point of water?\nAnswer: 100 degrees Celsius.\nQuestion: What is its freezing "
        "point?\nAnswer:"
    ),
    "English: Good morning\nFrench: Bonjour\nEnglish: Thank you\nFrench: Merci\nEnglish: Good night\nFrench:",
    "Dear Sir or Madam,\n\nI am writing to you because",
    "The weather today is cloudy with some rain in the afternoon. Tomorrow it will be",
    "The main differences between a cat and a dog are that cats",
    "Photosynthesis is the process by which plants",
    "In 1969, for the first time, people",
    "A good friend is somebody who",
    "The recipe needs flour, sugar, butter, and three eggs. First,",
    "Das Wetter ist heute schön, deshalb gehen wir",
    "Les enfants jouent dans le jardin pendant que",
    "The following is a list of countries in Europe: Austria, Belgium,",
    "It is often said that practice makes perfect. This is true because",
)
_CHATS = (
    "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a poem about the sea.<|im_end|>\n<|im_start|>assistant\n",
    (
        "<|im_start|>system\nAnswer with one word.<|im_end|>\n<|im_start|>user\nWhat colour is snow?<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "<|im_start|>user\nHow do I sort a list in Python?<|im_end|>\n<|im_start|>assistant\n",
)
_LONG = (
    " ".join(f"Chapter {n}: the traveller walks on, and sees village number {n} on the hill." for n in range(1, 31)),
    "The quick brown fox jumps over the lazy dog. " * 24,
    SYSTEM * 3 + "Tell me all of it again in other words.",
    "\n".join(f"{n} times {n} is {n * n}." for n in range(1, 60)),
)

PROMPTS: tuple[str, ...] = (*_SHORT, *_MIDDLE, *_CHATS, *(SYSTEM + asked for asked in _VISITORS), *_LONG)
