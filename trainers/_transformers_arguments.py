"""Arguments of `transformers.TrainingArguments`."""

import dataclasses

from transformers import TrainingArguments

# Arguments of `TrainingArguments` that the trainer sets itself, and arguments that would break its
# reports and checkpoints.
RESERVED = (
    "auto_find_batch_size",
    "batch_eval_metrics",
    "data_seed",
    "dataloader_drop_last",
    "deepspeed",
    "disable_tqdm",
    "do_eval",
    "do_predict",
    "do_train",
    "enable_jit_checkpoint",
    "eval_on_start",
    "fsdp",
    "fsdp_config",
    "ignore_data_skip",
    "load_best_model_at_end",
    "local_rank",
    "logging_first_step",
    "logging_steps",
    "logging_strategy",
    "output_dir",
    "parallelism_config",
    "prediction_loss_only",
    "push_to_hub",
    "remove_unused_columns",
    "report_to",
    "restore_callback_states_from_checkpoint",
    "resume_from_checkpoint",
    "save_on_each_node",
    "save_only_model",
    "save_steps",
    "save_strategy",
    "save_total_limit",
    "seed",
    "train_sampling_strategy",
    "use_cpu",
)
# The arguments of `TrainingArguments`
ARGUMENTS = [field.name for field in dataclasses.fields(TrainingArguments) if field.init]
