"""The Open Inference Protocol version 2 over gRPC, and gRPC's health protocol, on a socket that is bound already.

What enters: HTTP/2 frames. What leaves: the same `Given` that the HTTP protocols hand to `serving`, and its reply as
protocol buffers. Nothing of gRPC's C core can run here: it makes its own sockets and threads, which a confined process
may not (docs/decisions/0018-grpc-on-h2.md has why not `grpclib` either). `h2` does the framing.

    connection (one client: frames, bounds, GOAWAY) ─► exchange (one call: a request message in, answers out)
        ─► methods (which call is what) ─► infer, stream (asked: tensors ─► serving.Service)
                                        ─► texts (asked ─► serving.GenerateService, many answers to one request)
                                        ─► facts (metadata, configuration, statistics), health

Read `wire` first (what gRPC adds to HTTP/2; pure), then `exchange`, `connection` and `methods`. `tensors` is pure:
messages to `Given`, `Reply` to messages. `proto/` holds the two .proto files and what is generated from them. Source:
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""
