// Boxes on a canvas that lies over a picture: drawn with the pointer or with the keyboard.

const LEAST = 4; // pixels of the picture; less was a click
const STEP = 0.02; // of the picture, for a key

export class Pen {
  // `done(box)` when one was drawn, or the suggestion accepted; `changed()` when keys moved it; `tapped()` on a click;
  // `touch`: whether fingers draw without being asked.
  constructor(canvas, { done, changed = () => {}, tapped = () => {}, touch = true }) {
    Object.assign(this, { canvas, done, changed, tapped, touch });
    this.width = this.height = 1; // of the picture
    this.view = null; // [x, y, width, height]: the part of the picture that is shown, if not all
    this.box = null; // drawn by hand
    this.suggestion = null; // a box, while none is drawn
    this.answer = null; // found
    this.isGuess = false;
    this.active = false; // asked to draw
    this.start = null;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", () => this.#give());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.paint()).observe(canvas);
    this.activate(false);
  }

  get shown() {
    return this.view ?? [0, 0, this.width, this.height];
  }

  activate(on) {
    this.active = on;
    this.canvas.classList.toggle("drawing", on || this.touch);
  }

  paint() {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    this.picture?.(pen, width, height);
    if (this.suggestion && !this.box) this.#outline(pen, this.suggestion, "#ffffff", 2 * scale, [8 * scale, 6 * scale]);
    if (this.box) {
      const [x, y, w, h] = this.#placed(this.box);
      pen.fillStyle = "rgba(0, 0, 0, .45)";
      pen.fillRect(0, 0, width, y);
      pen.fillRect(0, y + h, width, height - y - h);
      pen.fillRect(0, y, x, h);
      pen.fillRect(x + w, y, width - x - w, h);
      this.#outline(pen, this.box, "#ffffff", 2 * scale);
    }
    if (this.answer) this.#outline(pen, this.answer, "#ffd200", 3 * scale, this.isGuess ? [10 * scale, 7 * scale] : []);
  }

  #outline(pen, box, colour, line, dash = []) {
    const place = this.#placed(box);
    pen.setLineDash([]);
    pen.lineJoin = "round";
    pen.strokeStyle = "rgba(0, 0, 0, .7)";
    pen.lineWidth = line * 2;
    pen.strokeRect(...place);
    pen.setLineDash(dash);
    pen.strokeStyle = colour;
    pen.lineWidth = line;
    pen.strokeRect(...place);
  }

  #placed([x1, y1, x2, y2]) {
    const [x, y, w, h] = this.shown;
    const [sx, sy] = [this.canvas.width / w, this.canvas.height / h];
    return [(x1 - x) * sx, (y1 - y) * sy, (x2 - x1) * sx, (y2 - y1) * sy];
  }

  #point(event) {
    const area = this.canvas.getBoundingClientRect();
    const [x, y, w, h] = this.shown;
    const inside = (value, most) => Math.min(Math.max(value, 0), most);
    return [
      inside(x + ((event.clientX - area.left) / area.width) * w, this.width),
      inside(y + ((event.clientY - area.top) / area.height) * h, this.height),
    ];
  }

  #down(event) {
    if (event.button !== 0) return;
    this.start = this.#point(event);
    this.before = this.box;
    this.draws = this.active || this.touch || event.pointerType !== "touch";
    if (this.draws) this.canvas.setPointerCapture(event.pointerId);
  }

  #move(event) {
    if (!this.start || !this.draws) return;
    const [[ax, ay], [bx, by]] = [this.start, this.#point(event)];
    this.box = [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)];
    this.paint();
  }

  #up(event) {
    if (!this.start) return;
    this.#move(event);
    const { box, before, draws } = this;
    this.start = null;
    if (draws && box && box !== before && Math.min(box[2] - box[0], box[3] - box[1]) >= LEAST) {
      this.done(box);
    } else {
      this.#give();
      if (!this.box && contains(this.suggestion, this.#point(event))) this.done(this.suggestion);
      else this.tapped();
    }
  }

  #give() {
    this.start = null;
    this.box = this.before ?? null;
    this.paint();
  }

  #key(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "b" || event.key === "B") this.begin();
    else if (this.active && event.key in arrows) this.#nudge(arrows[event.key], event.shiftKey);
    else if (this.active && event.key === "Enter" && (this.box ?? this.suggestion)) this.done(this.box ?? this.suggestion);
    else if (this.active && event.key === "Escape") {
      this.box = this.before ?? null;
      this.activate(false);
      this.#show();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // A box in the middle, to be moved with the keyboard.
  begin() {
    this.before = this.box;
    this.activate(true);
    this.box ??= this.suggestion ?? this.#middle();
    this.canvas.focus();
    this.#show();
  }

  #middle() {
    const [x, y, w, h] = this.shown;
    return [x + 0.35 * w, y + 0.35 * h, x + 0.65 * w, y + 0.65 * h];
  }

  #nudge([dx, dy], resize) {
    const [, , w, h] = this.shown;
    const [mx, my] = [dx * STEP * w, dy * STEP * h];
    let [x1, y1, x2, y2] = this.box ?? this.suggestion ?? this.#middle();
    if (resize) {
      x2 = Math.min(Math.max(x2 + mx, x1 + LEAST), this.width);
      y2 = Math.min(Math.max(y2 + my, y1 + LEAST), this.height);
    } else {
      const [tx, ty] = [Math.min(Math.max(mx, -x1), this.width - x2), Math.min(Math.max(my, -y1), this.height - y2)];
      [x1, y1, x2, y2] = [x1 + tx, y1 + ty, x2 + tx, y2 + ty];
    }
    this.box = [x1, y1, x2, y2];
    this.#show();
  }

  #show() {
    this.paint();
    this.changed();
  }
}

function contains(box, [x, y]) {
  return box !== null && x >= box[0] && x <= box[2] && y >= box[1] && y <= box[3];
}
