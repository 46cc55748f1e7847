/** The rules of the simulations of RoCE, by name; canaries name the one they break. */

/** A rule that a run broke. */
export class BrokenRoceRule extends Error {
  readonly rule: string;

  constructor(rule: string, text: string) {
    super(`${rule}: ${text}`);
    this.rule = rule;
  }
}

/** Throws `BrokenRoceRule` unless it `holds`. */
export function must(holds: boolean, rule: string, text: string): void {
  if (!holds) throw new BrokenRoceRule(rule, text);
}
