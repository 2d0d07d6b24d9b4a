"""What hooks change on objects of Lightning, torch and the user; Lightning's private names.

No class is changed. The changes of an object are on a stack that undoes them, also after an error:
``Driver.of(trainer).fit``, or a part of the fit.

Methods replaced on the object:

============================================  ==========================  ==========================
method                                        by                          for
============================================  ==========================  ==========================
module ``setup``                              Driver                      all callbacks are set up
module ``configure_callbacks``                Driver                      the next fit begins
module ``training_step``                      StepCapture                 the step's result
module ``training_step``, ``log``             LossNames, in two steps     names of the loss
module ``training_step``, ``forward``, ...    ModelWatch                  isolate foreign hooks
module ``forward``                            in_forward, in a call       FSDP's whole parameters
module ``on_validation_model_zero_grad``      Ownership                   hooks keep gradients
module ``on_train_epoch_end``                 Driver                      values of the epoch
module ``on_train_epoch_end``                 EvalHook                    files after the event
module ``on_train_batch_end``                 StepTimeHook                end of the iteration
module ``on_load_checkpoint``                 Contents                    files without callbacks
module ``on_save_checkpoint``                 Contents                    files without callbacks
module ``load_state_dict``                    AveragingHook               a swap left by an error
module ``log``, ``log_dict``                  isolated_logging            a hook runs the model
BatchNorm layer ``forward``                   update_bn_stats             size of the input
Trainer ``save_checkpoint``                   CheckInvalidLossHook        check before a file
Trainer ``save_checkpoint``                   StepTimeHook                time
Trainer ``save_checkpoint``                   ScheduleFreeHook            weights to evaluate
strategy, validation loop, loggers            StepTimeHook                time
validation loop ``run``                       SecondValidation            scores of raw weights
Trainer ``save_checkpoint``, that ``run``     ThroughputHook              time
strategy ``load_checkpoint``                  SavingHook, with shards     verify before reading
strategy ``save_checkpoint``                  Contents                    files after the fit
fit loop ``_load_combined_loader_states``     TrainData                   iterate after the hooks
fit loop's epoch loop ``reset``               TrainData, in a resume      no false warning
epoch loop ``_broadcast_sigterm_tensor``      SharedSigterm, at SIGTERM   end all ranks
loader ``_get_iterator``                      LoaderPlaces                place in the pass
epoch loop's results ``log``                  RunState, in a resume       an epoch's sums
============================================  ==========================  ==========================

Attributes set for a time:

============================================  ==========================  ==========================
attribute                                     by                          until the end of
============================================  ==========================  ==========================
module ``automatic_optimization``             Ownership                   the fit
module ``requires_grad``, train flags         FreezeHook                  the fit, or earlier
parameters' ``data``                          WeightSwap                  a validation
BatchNorm layer ``momentum``                  update_bn_stats             a pass
Metric ``distributed_available_fn``           EvalHook                    a computation
optimizer ``found_inf``, ``grad_scale``       CheckInvalidLossHook        a step
strategy ``checkpoint_io``                    check_reads                 the fit
the process's handler of SIGTERM              SharedSigterm               the fit
strategy ``checkpoint_io``                    CheckpointStore             a save
fit loop ``min_epochs``, ``min_steps``        forget_minimum              the fit
fit loop's loaders, fetcher, ``max_batches``  keep_train_data             an epoch
validation loop's loaders, ``_max_batches``   replace_val_loader          a validation
Trainer ``val_check_batch``                   keep_train_data             an epoch
Trainer's stage, loops' ``_results``          PreciseBNHook, ExtraPass    a pass
Trainer ``callbacks``, ``loggers``, metrics   SecondValidation            a second validation
validation loop's loaders, counts, results    SecondValidation            a second validation
loader ``sampler`` or ``batch_sampler``       LoaderPlaces                making an iterator
loader ``collate_fn``                         LoaderPlaces                making an iterator
loader ``worker_init_fn``, ``generator``      LoaderPlaces                making an iterator
============================================  ==========================  ==========================

Two patches outlive the fit: ``save_checkpoint`` of the strategy until the next fit, and of a
Trainer with an invalid loss until the next file. For good is what a hook wishes for the run, as any
callback may: ``trainer.should_stop``, ``trainer.optimizers``, ``max_epochs`` and ``max_steps``, the
loops' counts of a resumed run, the end of a loader's persistent workers, a replaced submodule,
mmcv's ``fp16_enabled``, and ``module.hook_buffers``, the names of buffers added by hooks. For old
scripts alone, ``lightning_hooks/standin/habits.py`` changes modules.
"""
