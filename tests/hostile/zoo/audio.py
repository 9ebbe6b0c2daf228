"""Speech encoders of transformers with random weights, and a model on mel spectrograms."""

from typing import Any

import torch
from torch import nn

from tests.hostile.zoo.case import AUTO, ROWS, Case
from tests.hostile.zoo.text import model


def wav2vec2() -> nn.Module:
    options = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    convolutions = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    return model("Wav2Vec2Model", "Wav2Vec2Config", **options, **convolutions, **positions)


def whisper() -> nn.Module:
    options: dict[str, Any] = {"d_model": 16, "num_mel_bins": 8, "max_source_positions": 16, "vocab_size": 60}
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in {"layers": 1, "attention_heads": 2, "ffn_dim": 32}.items()
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return model("WhisperModel", "WhisperConfig", **options, **sides, **tokens).get_encoder().eval()


class Keywords(nn.Module):
    """Waveform in: short-time Fourier transform, mel bands, decibels, convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.register_buffer("bands", torch.rand(17, 8))
        self.net = nn.Sequential(nn.Conv1d(8, 12, 3, stride=2), nn.BatchNorm1d(12), nn.GELU(), nn.Conv1d(12, 5, 3))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(wave, 32, hop_length=16, window=self.window, center=True, return_complex=True)
        mel = torch.matmul(spectrum.abs().square().transpose(1, 2), self.bands).clamp_min(1e-5).log10() * 10
        found: torch.Tensor = self.net(mel.transpose(1, 2)).mean(-1)
        return found


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


PROGRAMS: dict[str, Case] = {
    "wav2vec2": Case(wav2vec2, (noise(2, 400),), dynamic={"input_values": ROWS}, batches=(1, 3)),
    "wav2vec2_decomposed": Case(
        wav2vec2, (noise(2, 400),), dynamic={"input_values": ROWS}, batches=(1, 3), decompose=True
    ),
    "whisper_encoder": Case(whisper, (noise(2, 8, 32),), dynamic={"input_features": ROWS}, batches=(1, 3)),
    "keywords": Case(lambda: Keywords().eval(), (noise(2, 320),), dynamic=({0: AUTO},), batches=(3, 5)),
    "keywords_decomposed": Case(
        lambda: Keywords().eval(), (noise(2, 320),), dynamic=({0: AUTO},), batches=(3,), decompose=True
    ),
}
