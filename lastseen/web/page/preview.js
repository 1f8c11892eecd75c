// A small picture of the moment under the pointer, over the timeline.

import { frameAddress } from "./api.js";
import { clock, make } from "./moments.js";

const REST_MS = 70; // the pointer must stay so long, so that sweeping over the timeline asks for little
const MOST = 150; // different moments of a video, so that the browser can keep them

export class Preview {
  // `shown()` is the video on the screen, if any; `plot` is the element that its time spans.
  constructor(timeline, { shown, plot }) {
    Object.assign(this, { timeline, shown, plot });
    this.image = make("img", { alt: "" });
    this.clock = make("span", { className: "clock" });
    this.card = make("div", { className: "preview", hidden: true, "aria-hidden": "true" }, this.image, this.clock);
    timeline.append(this.card);
    timeline.addEventListener("pointermove", (event) => this.#over(event));
    timeline.addEventListener("pointerleave", () => this.hide());
  }

  hide() {
    clearTimeout(this.waiting);
    this.card.hidden = true;
  }

  #over(event) {
    const video = this.shown();
    // A finger sees the moment itself; a sighting has its own picture.
    if (!video || event.pointerType === "touch" || event.target.closest(".small")) return this.hide();
    const [area, whole] = [this.plot().getBoundingClientRect(), this.timeline.getBoundingClientRect()];
    const share = Math.min(Math.max((event.clientX - area.left) / area.width, 0), 1);
    const time = (Math.round(share * MOST) / MOST) * Math.max(0, video.duration - 0.05);
    this.card.style.left = `${area.left - whole.left + share * area.width}px`;
    this.clock.textContent = clock(share * video.duration);
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      this.image.src = frameAddress(video.id, time, 240);
      this.image.style.aspectRatio = video.width / video.height;
      this.card.hidden = false;
    }, REST_MS);
    return undefined;
  }
}
