"""Short reviews, a tokenizer and a small BERT, for `transformers.yaml`. Nothing is downloaded.

For your own data, use a pretrained model: `AutoModelForSequenceClassification.from_pretrained(PATH,
num_labels=num_labels)`, and the tokenizer `AutoTokenizer.from_pretrained(PATH)`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

GOOD = ("good", "great", "funny", "moving", "clever")
BAD = ("bad", "dull", "silly", "flat", "noisy")
FRAME = ("the", "film", "plot", "cast", "was", "and", "a", "bit", "not", "very")


def reviews(rows: int = 600) -> pd.DataFrame:
    """Return made reviews. `is_positive` is True if more words praise than blame.

    `not` turns the next word around.
    """
    rng = np.random.default_rng(0)
    texts, positive = [], []
    for _ in range(rows):
        words = list(rng.choice(GOOD + BAD + FRAME, rng.integers(6, 14)))
        signs = [(word in GOOD) - (word in BAD) for word in words]
        turned = [
            -sign if before == "not" else sign
            for before, sign in zip(["", *words], signs, strict=False)
        ]
        texts.append(" ".join(words))
        positive.append(sum(turned) > 0)
    return pd.DataFrame({"text": texts, "is_positive": positive})


def tokenizer():
    """Return a tokenizer that knows each word of the reviews."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", *GOOD, *BAD, *FRAME]
    words = Tokenizer(
        models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    )


def model(
    num_labels: int, vocab_size: int, hidden_size: int, num_hidden_layers: int, dropout: float
):
    """Return a new BERT. The trainer passes `num_labels` and `vocab_size`.

    The other arguments come from `space.params`.
    """
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=vocab_size,
        num_labels=num_labels,
        hidden_size=hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=4,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
    )
    return BertForSequenceClassification(config)
