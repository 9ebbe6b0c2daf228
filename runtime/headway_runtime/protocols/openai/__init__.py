"""What OpenAI's clients speak: completions, chat completions, the list of models, and embeddings.

    body ─► documents ─► completions | chat: fields, sampling, formats, tools ─► Question (checked, pure)
         ─► prompts: template and tokens, beside the event loop where they are long
         ─► answering: a turn on the connection ─► GenerateService.start
    pieces ─► replies | events (the bytes of a chunk; tool calls by `calls`) ─► the connection

Read `question` first (what both routes ask for), then `completions` and `chat` (from a body to it; pure), `answering`
(one request), `events` (what a stream costs a token is there). `embeddings` and `models` are routes of FastAPI, and
answer by themselves. Errors of all of them have OpenAI's shape (`errors`). Source: OpenAI's API reference, sections
Chat, Completions (legacy), Models, Embeddings; what vLLM adds in `extra_body`, where it is widely used.
"""
