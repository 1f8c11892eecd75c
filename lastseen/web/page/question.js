// The question that is shown: its job, and the answers to it, the preliminary ones first.

import { get, post } from "./api.js";

const ENDED = ["done", "failed", "cancelled"];

export class Question {
  // `changed()` when the job is; `answered()` when answers are there or sharper; `failed(problem)`.
  constructor({ changed, answered, failed }) {
    Object.assign(this, { changed, answered, failed });
    this.latest = null; // job that an event told of: it can come before the reply to the question
    this.close();
  }

  close() {
    this.id = this.job = this.answers = this.thing = null;
  }

  get running() {
    return this.job !== null && !ENDED.includes(this.job.state);
  }

  get preliminary() {
    return this.answers?.preliminary ?? false;
  }

  async ask(body) {
    const job = await post("/api/find", body);
    Object.assign(this, { id: job.id, job, answers: null, thing: JSON.stringify(body.looks) });
    this.changed();
    if (this.latest?.id === job.id) this.tell(this.latest);
  }

  // Asked before, perhaps by another page; `looks` are those that are marked now.
  async open(id, looks) {
    Object.assign(this, { id, job: null, answers: null, thing: JSON.stringify(looks) });
    const { answers, state } = await get(`/api/questions/${id}`);
    if (this.id !== id) return;
    if (state !== "done") this.tell(await get(`/api/jobs/${id}`));
    else if (!this.answers) {
      this.answers = answers;
      this.answered(null);
    }
  }

  // Whether the thing is no longer the one that was asked for.
  isOf(looks) {
    return this.thing === JSON.stringify(looks);
  }

  // An event of the server.
  tell(job) {
    this.latest = job;
    if (this.id !== job.id || ENDED.includes(this.job?.state)) return;
    this.job = job;
    this.changed();
    if (job.state === "failed") this.failed(new Error(job.message));
    if (job.state === "done" || (job.answered && !this.answers)) this.#fetch().catch(this.failed);
  }

  cancel() {
    if (this.running) post(`/api/jobs/${this.id}/cancel`).catch(this.failed);
  }

  async #fetch() {
    const id = this.id;
    const answers = await get(`/api/jobs/${id}/answers`);
    // Meanwhile another question, or the final answer.
    if (this.id !== id || (this.answers && !this.preliminary)) return;
    const before = this.answers;
    this.answers = answers;
    this.answered(before);
  }
}
