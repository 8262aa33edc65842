// What programs write for a terminal, as plain text: no colours, and progress lines that stay one.

// Complete control sequences, and one that is torn at the end of a part.
const CODES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const TORN = /\u001b(?:\[[0-?]*[ -/]*|\][^\u0007\u001b]{0,200})?$|\r$/;
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

export class Terminal {
  constructor() {
    this.text = "";
    this.rest = "";
  }

  /** Take a part; return all text so far. */
  write(part) {
    let fresh = this.rest + part;
    this.rest = TORN.exec(fresh)?.[0] ?? "";
    fresh = fresh
      .slice(0, fresh.length - this.rest.length)
      .replace(CODES, "")
      .replaceAll("\r\n", "\n");
    const start = this.text.lastIndexOf("\n") + 1;
    const lines = (this.text.slice(start) + fresh).split("\n").map(overwrite);
    this.text = this.text.slice(0, start) + lines.join("\n");
    return this.text;
  }

  /** Let go of the first characters. */
  forget(count) {
    this.text = this.text.slice(count);
  }
}

/** After a carriage return the line is written anew. */
function overwrite(line) {
  const last = line.lastIndexOf("\r");
  return (last < 0 ? line : line.slice(last + 1)).replace(ODD, "\ufffd");
}
