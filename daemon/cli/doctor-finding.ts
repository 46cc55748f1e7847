/** A check of `iwarpd doctor` and its finding. */

/** What a check found. */
export interface Finding {
  /** `broken`: iwarpd does not work; `warn`: it works, but slower or in part; `info`: for information. */
  readonly state: 'ok' | 'warn' | 'broken' | 'info';
  readonly text: string;
  /** What to do about it. */
  readonly fix?: string;
}

/** Where to look. */
export interface Place {
  readonly socketPath: string;
}

/** One thing to look at. */
export interface Check {
  readonly name: string;
  readonly examine: (place: Place) => Finding | Promise<Finding>;
}
