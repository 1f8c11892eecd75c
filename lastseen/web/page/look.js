// One picture of the thing: a photo or a moment of a video, and where the thing is in it.

import { Problem } from "./api.js";
import { make } from "./moments.js";

const SMALL = 96; // pixels, the longer side of its small picture

export class Look {
  // `source` is { picture } or { video, time }, as the API wants it.
  constructor(source, image, [width, height], { box = null, where = "" } = {}) {
    Object.assign(this, { source, image, width, height, box, where });
    this.whole = false; // the whole picture is the thing
    this.suggestion = null; // a box
  }

  static async load(source, address, size, more) {
    const image = new Image();
    image.src = address;
    await image.decode().catch(() => {
      throw new Problem("The picture cannot be shown.");
    });
    return new Look(source, image, size, more);
  }

  get isPhoto() {
    return this.source.picture !== undefined;
  }

  get ready() {
    return this.box !== null || (this.isPhoto && this.whole);
  }

  // Without a box the whole picture is the thing.
  get asked() {
    return { ...this.source, box: this.box };
  }

  small() {
    const scale = (2 * SMALL) / Math.max(this.width, this.height);
    const canvas = make("canvas", { width: Math.round(this.width * scale), height: Math.round(this.height * scale) });
    const pen = canvas.getContext("2d");
    pen.drawImage(this.image, 0, 0, canvas.width, canvas.height);
    if (this.box) {
      const [x1, y1, x2, y2] = this.box.map((side) => side * scale);
      for (const [colour, line] of [["rgba(0, 0, 0, .7)", 8], ["#ffffff", 4]]) {
        Object.assign(pen, { strokeStyle: colour, lineWidth: line });
        pen.strokeRect(x1, y1, x2 - x1, y2 - y1);
      }
    }
    return canvas;
  }
}
