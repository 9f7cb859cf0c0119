"""What Client.submit returns."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any, Callable, Generator, Optional


class Future(concurrent.futures.Future):  # type: ignore[type-arg]
    """A concurrent.futures.Future that can be awaited, too. cancel() asks the daemon to drop the
    request; where it was launched already it runs to its end, and nobody sees the result."""

    def __init__(self) -> None:
        super().__init__()
        self._drop: Optional[Callable[[], None]] = None  # set once the request is on its way
        self._cancelling = threading.Lock()

    def cancel(self) -> bool:
        with self._cancelling:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()  # for those in wait() and as_completed()
        if self._drop is not None:
            self._drop()
        return True

    def _finish(self, value: Any, error: Optional[BaseException]) -> None:
        try:
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(value)
        except concurrent.futures.InvalidStateError:
            pass  # cancelled before
        self._drop = None

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()
