"""``CheckInvalidLossHook`` and its actions: raise, stop, skip the step, or roll back."""
