/**
 * Refused calls, with their reasons. An errno does not explain itself, so each refusal has a sentence in
 * the program's terms. `iwarpd explain` and `GET /refusals` show it.
 */

/**
 * Where a refusal was reported: `verbs` and `cm` to programs that use libibverbs and librdmacm, `netlink`
 * to iproute2's `rdma`, `typescript` to programs that use this package, `socket` to connections that the
 * daemon rejected. A `completion` has an error status, an `event` is asynchronous, and `advice` names
 * something that works here but not on other devices.
 */
export const REFUSAL_APIS = [
  'verbs',
  'cm',
  'netlink',
  'typescript',
  'socket',
  'completion',
  'event',
  'advice',
] as const;

/** See `REFUSAL_APIS`. */
export type RefusalApi = (typeof REFUSAL_APIS)[number];

/** Length of a sentence, in UTF-16 units: a longer one is cut. */
export const SENTENCE_MAX = 480;

/** Refusals kept for one user: the latest ones. A run of a program has dozens. */
export const REFUSALS_OF_USER_MAX = 256;

/** One refusal. */
export interface Refusal {
  /** Consecutive number within the daemon, from 1. */
  readonly number: number;
  /** Time as ISO 8601; for repeats, that of the last one. */
  readonly at: string;
  /** Process id of the program; 0 if the daemon cannot see it. */
  readonly pid: number;
  /** User id of the program. */
  readonly uid: number;
  /** Name of the program; '' if the daemon cannot see it. */
  readonly program: string;
  /** Where it was reported. */
  readonly api: RefusalApi;
  /** The call, with the program's spelling: 'ibv_modify_qp', 'rdma_connect', 'createQP'. */
  readonly verb: string;
  /** Step of the call: 'INIT to RTR'. */
  readonly step?: string;
  /** Result: the name of an errno, of a completion's status or of an event; or ''. */
  readonly code: string;
  /** Why: the field, its value and the accepted values. */
  readonly sentence: string;
  /** Name of the device. */
  readonly device?: string;
  /** Numbers of the objects by kind, as programs print them: `{ qp: 17 }`. */
  readonly objects?: Readonly<Record<string, number>>;
  /** How often in a row the same refusal was reported. */
  readonly times: number;
}

/** A refusal as one line, the same everywhere: `ibv_modify_qp INIT to RTR: EINVAL: …`. */
export function refusalLine(refusal: Pick<Refusal, 'verb' | 'step' | 'code' | 'sentence'>): string {
  const { code, sentence } = refusal;
  return [refusedCall(refusal), code, sentence].filter((part) => part !== '').join(': ');
}

/** The call with its step: `ibv_modify_qp INIT to RTR`. */
export function refusedCall({ verb, step }: Pick<Refusal, 'verb' | 'step'>): string {
  return step === undefined ? verb : `${verb} ${step}`;
}

/** The device and the objects, as in `roce0 qp 17`; '' if there are none. */
export function refusalPlace({
  device,
  objects = {},
}: Pick<Refusal, 'device' | 'objects'>): string {
  const numbers = Object.entries(objects).map(([kind, number]) => `${kind} ${number}`);
  return [...(device === undefined ? [] : [device]), ...numbers].join(' ');
}

/** Which refusals to list; all given fields must match. */
export interface RefusalFilter {
  /** Only refusals after this number. Default: 0. */
  readonly after?: number;
  /** Process id of the program. */
  readonly pid?: number;
  /** Name of the program. */
  readonly program?: string;
  /** Name of the device. */
  readonly device?: string;
  /** Maximum number; the latest ones are returned. Default and maximum: `REFUSALS_LIST_MAX`. */
  readonly limit?: number;
  /**
   * Waits up to this many milliseconds until there is a match. Default: 0. Maximum:
   * `REFUSALS_WAIT_MS_MAX`.
   */
  readonly waitMs?: number;
}

/** Refusals in one reply, which must fit a frame of the socket. */
export const REFUSALS_LIST_MAX = 1024;
/** Longest wait for a refusal, in milliseconds; to wait longer, ask again. */
export const REFUSALS_WAIT_MS_MAX = 20_000;

/** Refusals, oldest first. */
export interface RefusalList {
  /** Those that match, oldest first. */
  readonly refusals: readonly Refusal[];
  /** Number of the daemon's last refusal: the next `after`. */
  readonly last: number;
  /** Matching refusals after `after` that are missing because later ones replaced them. */
  readonly lost: number;
}

/** Number of refusals of a verb with a code. */
export interface RefusalCount {
  readonly api: string;
  readonly verb: string;
  readonly code: string;
  count: number;
}
