"""A small BERT and another model for the trainer `transformers`, as users write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast


def bert(num_labels: Any, hidden_size: int = 8, dropout: float = 0.1, vocab_size: int = 20) -> Any:
    """Return a small BERT."""
    shape = {
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "max_position_embeddings": 16,
    }
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=vocab_size, hidden_size=hidden_size, num_labels=num_labels, **shape, **drops
        )
    )


def bins(features: Any, levels: int = 4) -> Any:
    """Convert each number to a token."""
    ids = np.clip(np.floor(features.to_numpy(float) + levels / 2), 0, levels - 1).astype(
        int
    ) + levels * np.arange(features.shape[1])
    return {"input_ids": ids % 20, "attention_mask": np.ones_like(ids)}


class Linear(torch.nn.Module):
    """A model that is no `PreTrainedModel`."""

    def __init__(self, num_labels: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(5, num_labels)

    def forward(self, x: Any, labels: Any = None) -> Any:
        logits = self.layer(x)
        if labels is None:
            return {"logits": logits}
        if logits.shape[1] == 1:
            return {"loss": torch.nn.functional.mse_loss(logits[:, 0], labels), "logits": logits}
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def vectors(features: Any) -> Any:
    """Return a dataset with a mapping for each row."""
    return [
        {"x": torch.tensor(row, dtype=torch.float32), "unused": 0} for row in features.to_numpy()
    ]


def words() -> Any:
    """Return a tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["[PAD]", "[UNK]", "good", "bad", "film", "plot", "very", "not", "the", "was"]
    tokenizer = Tokenizer(
        models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
