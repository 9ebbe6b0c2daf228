"""Who signed an artifact: checked after its digest and before anything in it is looked at. No torch.

What enters is the text of ``<uri>.sig``, the SHA-256 of the file that was fetched, and the public keys that a
deployment trusts. What leaves is a `Signed` value, or a `SignatureError` that says why not.

Two forms are read, and which one it is, is decided by the file alone:

- ours: a DSSE envelope around an in-toto Statement v1, whose predicate says which torch exported the program and
  whether the file holds native code. `headway sign` and `headway compile` write it, with Ed25519 keys.
- an OpenSSF model-signing bundle (``model_signing sign key``, ECDSA). It says who, and nothing about torch, and never
  that native code is meant.

Read in this order: ``statement`` (what is said), ``dsse`` (how it is signed), ``keys`` (by whom), ``openssf`` (the
other form), ``verify`` (the decision), ``trust`` (which keys a pod was given), ``step`` (fetching and deciding in the
init container).

For code that signs and loads compiled programs::

    from headway_runtime.prepare.signatures.keys import read_private_key
    from headway_runtime.prepare.signatures.statement import Statement
    from headway_runtime.prepare.signatures.verify import Signed, sign_statement, signature_file, verify

    key = read_private_key(Path("builder.key"))               # KeyFileError; passphrase=b"…" when it has one
    text = sign_statement(path, key, torch="2.15.0", native=True, target="cpu-avx2", source="sha256:…")
    signature_file(path).write_bytes(text)                    # path + ".sig"

    signed = verify(text, digest="sha256:…", trust=trust)     # SignatureError, SignatureInvalid
    signed.keyid, signed.builder                              # whose; whether it is a builder's key
    signed.statement.torch, .native, .target, .source         # what it says (of a bundle: None, False, None, None)

``verify`` refuses ``native: true`` unless a builder's key signed it, so ``signed.statement.native`` implies
``signed.builder``. Before loading native code, ask for ``signed is not None and signed.statement.native``, and compare
torch and target.
"""
