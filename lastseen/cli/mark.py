"""Mark the thing in a picture: in a window, or, where there is no display, by typing its box."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from lastseen.cli.request import parse_box
from lastseen.cli.terminal import complain, raw
from lastseen.errors import QueryError

if TYPE_CHECKING:
    import numpy as np

    from lastseen.box import Box

SHARE = 0.8  # of the screen that the picture takes, at most
LEAST_DRAG_PX = 4  # of the screen: less is a click
NOTHING_MARKED = "nothing was marked, so nothing was searched; --box X1,Y1,X2,Y2 says it without a window"
MOST_COLUMNS, CELL = 100, 2  # of the preview in a terminal; a character shows two pixels, one above the other
TICK_COLUMNS, TICK_ROWS = 10, 4


def mark(picture: np.ndarray, name: str) -> Box:
    """The box that the user draws around the thing in a picture [h, w, 3]."""
    height, width = picture.shape[:2]
    root = _window()
    if root is not None:
        return MarkWindow(root, picture, name).wait()
    if sys.stdin is not None and sys.stdin.isatty():
        return _asked_in_terminal(picture, name)
    raise QueryError(
        f"--mark needs a window or a terminal, and here is neither; give --box X1,Y1,X2,Y2 in pixels of the "
        f"{width}x{height} picture"
    )


def _window() -> Any | None:
    """None where there is no display, or Python came without Tk."""
    try:
        import tkinter

        return tkinter.Tk()
    except Exception:  # tkinter's own error cannot be named where tkinter is missing
        return None


class MarkWindow:
    """A picture as large as the screen allows; the last box that was dragged in it counts."""

    def __init__(self, root: Any, picture: np.ndarray, name: str) -> None:
        import tkinter

        from lastseen.picture import resized

        self.root, self.box = root, cast("Box | None", None)
        height, width = picture.shape[:2]
        self._size = width, height
        most = SHARE * root.winfo_screenwidth() / width, SHARE * root.winfo_screenheight() / height
        self.scale = min(*most, 2.0)
        shown = resized(picture, max(1, round(width * self.scale)), max(1, round(height * self.scale)))
        data = b"P6 %d %d 255\n" % shown.shape[1::-1] + shown.tobytes()
        self._image = tkinter.PhotoImage(master=root, data=data, format="PPM")
        root.title(f"lastseen: mark the thing in {name}")
        bar = tkinter.Frame(root, padx=8, pady=8)
        bar.pack(fill="x")
        tkinter.Label(bar, text="Drag a box around the thing, close to it.").pack(side="left")
        self._find = tkinter.Button(bar, text="Find (Enter)", command=self._accept, state="disabled")
        self._find.pack(side="right")
        tkinter.Button(bar, text="Cancel (Esc)", command=self._cancel).pack(side="right", padx=8)
        self.canvas = tkinter.Canvas(
            root, width=shown.shape[1], height=shown.shape[0], highlightthickness=0, cursor="crosshair"
        )
        self.canvas.create_image(0, 0, image=self._image, anchor="nw")
        self.canvas.pack()
        self.canvas.bind("<ButtonPress-1>", self._press)
        self.canvas.bind("<B1-Motion>", self._drag)
        for keys, action in (
            ("<Return>", self._accept),
            ("<KP_Enter>", self._accept),
            ("<Escape>", self._cancel),
        ):
            root.bind(keys, lambda _, action=action: action())
        root.protocol("WM_DELETE_WINDOW", self._cancel)
        root.lift()
        root.focus_force()
        self._corner = 0, 0

    def wait(self) -> Box:
        """The box, once the window was closed."""
        self.root.mainloop()
        if self.box is None:
            raise QueryError(NOTHING_MARKED)
        return self.box

    def _press(self, event: Any) -> None:
        self._corner = event.x, event.y

    def _drag(self, event: Any) -> None:
        (x, y), (width, height) = self._corner, self._size
        if min(abs(event.x - x), abs(event.y - y)) < LEAST_DRAG_PX:
            return
        self.box = box_between((x, y), (event.x, event.y), self.scale, width, height)
        self.canvas.delete("box")
        corners = [v * self.scale for v in self.box.xyxy]
        self.canvas.create_rectangle(*corners, outline="black", width=5, tags="box")
        self.canvas.create_rectangle(*corners, outline="#ffd200", width=3, tags="box")
        self._find["state"] = "normal"

    def _accept(self) -> None:
        if self.box is not None:
            self.root.destroy()

    def _cancel(self) -> None:
        self.box = None
        self.root.destroy()


def box_between(
    start: tuple[float, float], end: tuple[float, float], scale: float, width: int, height: int
) -> Box:
    """Two opposite corners on the screen -> whole pixels of a width x height picture."""
    from lastseen.box import Box

    x1, x2 = sorted(round(x / scale) for x in (start[0], end[0]))
    y1, y2 = sorted(round(y / scale) for y in (start[1], end[1]))
    return Box(x1, y1, x2, y2).clipped(width, height)


def _asked_in_terminal(picture: np.ndarray, name: str) -> Box:
    """Ask until there is a box in the picture; an empty line gives up."""
    from lastseen.query import Query

    height, width = picture.shape[:2]
    out = raw(sys.stderr)
    if out.isatty():
        print("\n".join(preview(picture, shutil.get_terminal_size().columns)), file=out)
    if find_spec("_tkinter") is None:
        print(
            "(With Python's Tk, the package python3-tk on many systems, this is a window.)", file=sys.stderr
        )
    print(f"{name} is {width}x{height} pixels. Where is the thing in it?", file=sys.stderr)
    while True:
        print("x1,y1,x2,y2 from the top left corner: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            raise QueryError(NOTHING_MARKED)
        try:
            box = parse_box(line.replace(" ", ",").replace(",,", ","))
            Query.from_array(picture, box)
        except QueryError as error:
            complain(error)
        else:
            assert box is not None
            return box


def preview(picture: np.ndarray, columns: int) -> list[str]:
    """The picture in coloured characters, with its pixels along the left and the upper side."""
    from lastseen.picture import resized

    height, width = picture.shape[:2]
    margin = len(str(height)) + 1
    columns = max(TICK_COLUMNS, min(MOST_COLUMNS, columns - margin - 1))
    rows = max(1, round(columns * height / width / CELL))
    small = resized(picture, columns, rows * CELL)
    ticks = "".join(
        str(round(at * width / columns)).ljust(TICK_COLUMNS)
        for at in range(0, columns - len(str(width)) + 1, TICK_COLUMNS)
    )
    lines = [" " * margin + ticks[:columns]]
    for row in range(rows):
        upper, lower = small[CELL * row], small[CELL * row + 1]
        cells = "".join(
            "\x1b[38;2;{};{};{};48;2;{};{};{}m\u2580".format(*above, *below)
            for above, below in zip(upper, lower)
        )
        label = str(round(row * height / rows)) if row % TICK_ROWS == 0 else ""
        lines.append(f"{label.rjust(margin - 1)} {cells}\x1b[0m")
    return lines
