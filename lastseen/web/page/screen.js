// The player: the video (or its stills, if the browser cannot play it), the box over it, the controls under it.

import { frameAddress } from "./api.js";
import { boxAt, clock } from "./moments.js";
import { Pen } from "./pen.js";

const CONTEXT = 2.5; // times the box is what is shown around it when zoomed
const MOST_ZOOM = 8;
const SAME_MOMENT = 0.1; // seconds
const ROUNDING = 0.002; // seconds past a frame's time, so that rounding does not show the one before

export class Screen {
  // `drawn(box, time)` when a box was drawn; `moved(time)` when another moment is shown.
  constructor(stage, { drawn, moved }) {
    Object.assign(this, { stage, moved });
    this.video = null; // facts of the API
    this.track = null;
    this.part = stage.querySelector(".screen");
    this.player = stage.querySelector("video");
    this.still = stage.querySelector(".still");
    this.range = stage.querySelector("input[type=range]");
    this.playButton = stage.querySelector("#play");
    this.drawButton = stage.querySelector("#draw");
    this.zoomButton = stage.querySelector("#zoom");
    this.zoomed = false; // on the answer's box
    this.pen = new Pen(stage.querySelector("canvas"), {
      touch: false,
      tapped: () => this.toggle(),
      done: (box) => {
        this.setDrawing(false);
        this.pause();
        drawn(box, this.time);
      },
    });
    this.range.addEventListener("input", () => this.seek(Number(this.range.value)));
    this.playButton.addEventListener("click", () => this.toggle());
    this.drawButton.addEventListener("click", () => this.setDrawing(!this.pen.active));
    this.zoomButton.addEventListener("click", () => this.zoom(!this.zoomed));
    for (const name of ["play", "pause", "seeked", "timeupdate", "loadeddata", "ended"]) {
      this.player.addEventListener(name, () => this.#show());
    }
    this.player.addEventListener("error", () => this.#useStills());
    this.player.addEventListener("play", () => this.#follow());
  }

  get time() {
    return this.stills ? this.stillTime : Math.max(0, this.player.currentTime - ROUNDING);
  }

  // Show a video; the same one again changes nothing.
  load(video) {
    if (this.video?.id === video.id) return;
    this.video = video;
    this.pen.box = null;
    Object.assign(this.pen, { width: video.width, height: video.height });
    this.track = null;
    this.zoom(false);
    this.part.style.setProperty("--aspect", video.width / video.height);
    this.range.max = video.duration;
    this.stage.querySelector("#shown").textContent = video.name;
    this.stage.hidden = false;
    this.stills = false;
    this.stillTime = 0;
    this.still.hidden = true;
    this.stage.querySelector("#stills").hidden = true;
    this.player.hidden = false;
    this.player.src = `/api/videos/${video.id}/file`;
    this.#show();
  }

  empty() {
    this.video = null;
    this.player.removeAttribute("src");
    this.player.load();
    this.stage.hidden = true;
  }

  // The track whose box is drawn; null for none.
  follow(track, isGuess = false) {
    this.track = track;
    this.pen.isGuess = isGuess;
    this.pen.box = null;
    this.zoomButton.hidden = !track;
    if (!track) this.zoom(false);
    this.#show();
  }

  // Show the surroundings of the answer's box large; the view moves when the box leaves it.
  zoom(on) {
    this.zoomed = on && this.track !== null;
    this.zoomButton.setAttribute("aria-pressed", String(this.zoomed));
    this.#look(null);
    this.#show();
  }

  #look(view) {
    this.pen.view = view;
    const { width, height } = this.pen;
    const [x, y, w] = this.pen.shown;
    const moved = `scale(${width / w}) translate(${(-100 * x) / width}%, ${(-100 * y) / height}%)`;
    for (const picture of [this.player, this.still]) picture.style.transform = view ? moved : "";
  }

  #inside(time) {
    return Math.min(Math.max(time, 0), Math.max(0, this.video.duration - 0.01));
  }

  #keepInView([x1, y1, x2, y2]) {
    const { width, height, view } = this.pen;
    if (view && x1 >= view[0] && y1 >= view[1] && x2 <= view[0] + view[2] && y2 <= view[1] + view[3]) return;
    const share = Math.min(1, Math.max((CONTEXT * (x2 - x1)) / width, (CONTEXT * (y2 - y1)) / height, 1 / MOST_ZOOM));
    const [w, h] = [share * width, share * height];
    const inside = (value, most) => Math.min(Math.max(value, 0), most);
    this.#look([inside((x1 + x2 - w) / 2, width - w), inside((y1 + y2 - h) / 2, height - h), w, h]);
  }

  // Whether this moment is shown.
  isAt(time) {
    return Math.abs(this.time - this.#inside(time)) < SAME_MOMENT;
  }

  seek(time) {
    if (!this.video) return;
    const inside = this.#inside(time);
    this.pen.box = null;
    if (this.stills) {
      this.stillTime = inside;
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => (this.still.src = frameAddress(this.video.id, inside, 1280)), 80);
    } else {
      this.player.currentTime = inside + ROUNDING;
    }
    this.#show(inside);
  }

  toggle() {
    if (this.stills || !this.video) return;
    if (this.player.paused) {
      this.pen.box = null;
      this.player.play().catch(() => {});
    } else this.player.pause();
  }

  pause() {
    this.player.pause();
  }

  setDrawing(on) {
    if (on) {
      this.pause();
      this.pen.activate(true);
      this.pen.canvas.focus();
    } else this.pen.activate(false);
    this.drawButton.setAttribute("aria-pressed", String(on));
    this.drawButton.textContent = on ? "Drag a box" : "Draw a box";
  }

  #useStills() {
    if (!this.video || !this.player.getAttribute("src")) return;
    this.stills = true;
    this.player.hidden = true;
    this.still.hidden = false;
    this.stage.querySelector("#stills").hidden = false;
    this.seek(0);
  }

  // The box moves with every frame while the video plays.
  #follow() {
    const next = this.player.requestVideoFrameCallback?.bind(this.player) ?? requestAnimationFrame;
    const step = () => {
      this.#show();
      if (!this.player.paused) next(step);
    };
    next(step);
  }

  #show(time = this.time) {
    if (!this.video) return;
    this.pen.answer = this.track ? boxAt(this.track, time) : null;
    if (this.zoomed && this.pen.answer) this.#keepInView(this.pen.answer);
    this.pen.paint();
    this.range.value = time;
    this.range.setAttribute("aria-valuetext", clock(time));
    this.stage.querySelector("#now").textContent = `${clock(time)} / ${clock(this.video.duration)}`;
    this.playButton.textContent = this.player.paused ? "Play" : "Pause";
    this.playButton.hidden = this.stills;
    this.moved(time);
  }
}
