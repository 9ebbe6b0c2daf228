"""One inference request: its call of the model, its answer.

complete ─► Service.expect ─► oip.decode ─► Service.call ─► done ─► answer
"""

from functools import partial

from headway_runtime.errors import RequestError
from headway_runtime.protocols import oip
from headway_runtime.protocols.http.bodies import is_large, is_long, read, write
from headway_runtime.protocols.http.posted import Posted, shown
from headway_runtime.serving.values import Call, Reply


class Inference(Posted):
    """Of the Open Inference Protocol."""

    __slots__ = ("_question",)
    _question: oip.Question  # once its body was read

    def error_document(self, error: RequestError) -> bytes:
        """As OIP has it."""
        return oip.error_body(str(error))

    def call(self) -> None:
        """The body is whole."""
        body, head, limit = self._body, self._head, self._most
        try:
            self._front.service.expect(self._deadline, head.priority)
            if is_large(body, head):
                self.elsewhere(partial(read, body, head, limit), self._ask)
                return
            question = read(body, head, limit)
        except Exception as error:
            self.fail(shown(error))
        else:
            self._ask(question)

    def done(self, result: Reply | RequestError | None) -> None:
        """What became of it; once, on the event loop."""
        if self.response_complete:  # the pod ends, and has not waited for it
            return
        if self.disconnected or result is None:
            self.end(None, "client_gone")
            self._wire.drop()
        elif isinstance(result, RequestError):
            self.fail(result)
        elif is_long(result, self._head):
            work = partial(write, self._question, result, self._front.identity, self._head.accepts)
            self.elsewhere(work, partial(self._answer, result))
        else:
            self._reply(result)

    def _ask(self, question: oip.Question) -> None:
        self._question = question
        self.release()
        call = Call(self._deadline, self.gone, self.done, self._head.priority)
        try:
            self._front.check(question)
            self._front.service.call(question.given, call)
        except Exception as error:
            self.fail(shown(error))

    def _reply(self, reply: Reply) -> None:
        try:
            written = write(self._question, reply, self._front.identity, self._head.accepts)
        except Exception as error:
            self.fail(shown(error))
        else:
            self._answer(reply, written)

    def _answer(self, reply: Reply, content: tuple[oip.Written, bool]) -> None:
        written, compressed = content
        self.close_if_ending()
        head = self._front.answers.good(
            self._wire.server_state,
            reply,
            written,
            closes=not self.keep_alive,
            coding=self._head.accepts if compressed else None,
        )
        self.end(200, None)
        self._wire.put(self, head, *written.parts)
