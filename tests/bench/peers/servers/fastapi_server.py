"""A reference, not a product: the FastAPI handler that a first service has. Pydantic in and out, no batching."""

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from served import config, load

_run = load()
app = FastAPI()


class Question(BaseModel):
    x: list[float]


class Answer(BaseModel):
    y: list[float]


@app.post("/predict")
async def predict(question: Question) -> Answer:
    return Answer(**_run([{"x": question.x}])[0])


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=config()["port"], log_level="warning")
