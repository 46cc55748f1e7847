/** A check of `iwarpd doctor` and its finding. */

export interface Finding {
  /** `broken`: iwarpd does not work; `warn`: it works, but slower or in part; `info`: for information. */
  readonly state: 'ok' | 'warn' | 'broken' | 'info';
  readonly text: string;
  readonly fix?: string;
}

const finding =
  (state: Finding['state']) =>
  (text: string, fix?: string): Finding =>
    fix === undefined ? { state, text } : { state, text, fix };

export const ok = finding('ok');
export const info = finding('info');
export const warn = finding('warn');
export const broken = finding('broken');

/** The socket to examine. */
export interface Place {
  readonly socketPath: string;
}

export interface Check {
  readonly name: string;
  readonly examine: (place: Place) => Finding | Promise<Finding>;
}
