"""One's own data: series in a csv, npz or ts file, folders of series or of images.

own/classes   series, the target is a class
own/values    series, the target is a number
own/images    images, a folder for each class
"""

from .settings import OwnConfig, task_of

__all__ = ["OwnConfig", "task_of"]
