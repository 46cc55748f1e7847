/**
 * Which rdma_cm ids may share a port: one table for Linux's drivers and for ours.
 * programs/bind-clashes.c explains the steps.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DeviceTransport } from '#contract/verbs/attributes';
import { compileProgram } from './c-programs.ts';
import { shellWord } from './kernel-peer/kernel-peer.ts';

/** Each case with the outcomes of its steps on siw and, if they differ, on rxe. */
const CASES: readonly (readonly [steps: string, siw: string, rxe?: string])[] = [
  ['bind a A, bind b A', 'ok, EADDRINUSE'],
  ['bind a A, bind b B', 'ok, ok'],
  ['bind a A, listen a, bind b A', 'ok, ok, EADDRINUSE'],
  ['bind a A, listen a, bind b B, listen b', 'ok, ok, ok, ok'],
  ['bind a A, bind b C, listen a, listen b', 'ok, ok, ok, ok'],
  ['bind a A, bind b 4', 'ok, EADDRNOTAVAIL'],
  ['bind a 4, bind b A', 'ok, EADDRNOTAVAIL'],
  ['bind a 4, bind b 4', 'ok, EADDRNOTAVAIL'],
  ['bind a A, listen a, bind b 4', 'ok, ok, EADDRNOTAVAIL'],
  ['bind a 4, listen a, bind b A', 'ok, ok, EADDRNOTAVAIL'],
  ['bind a 4, bind b 6', 'ok, EADDRNOTAVAIL'],
  ['bind a 6, bind b 4', 'ok, EADDRNOTAVAIL'],
  ['bind a 6, bind b A', 'ok, EADDRNOTAVAIL'],
  ['bind a A, bind b 6', 'ok, EADDRNOTAVAIL'],
  ['bind a 6, bind b C', 'ok, EADDRNOTAVAIL'],
  ['bind a C, bind b 6', 'ok, EADDRNOTAVAIL'],
  ['bind a C, bind b C', 'ok, EADDRINUSE'],
  ['narrow a, bind a 6, bind b 4', 'ok, ok, ok'],
  ['narrow a, bind a 6, bind b 4, listen a, listen b', 'ok, ok, ok, ok, ok'],
  ['narrow a, bind a 6, bind b 4, listen b, listen a', 'ok, ok, ok, ok, ok'],
  ['narrow a, bind a 6, bind b A, listen a, listen b', 'ok, ok, ok, ok, ok'],
  ['narrow a, bind a 6, bind b C', 'ok, ok, EADDRNOTAVAIL'],
  ['narrow a, bind a 6, bind b 6', 'ok, ok, EADDRNOTAVAIL'],
  ['widen a, bind a 4, narrow b, bind b 6', 'ok, ok, ok, EADDRNOTAVAIL'],
  ['widen a, bind a A, narrow b, bind b 6', 'ok, ok, ok, EADDRNOTAVAIL'],
  ['widen a, bind a A, bind b C', 'ok, ok, ok'],
  [
    'bind a 6, narrow a, bind b 4, widen a, listen b, listen a',
    'ok, ok, ok, ok, ok, EADDRINUSE',
    'ok, ok, ok, ok, ok, ok',
  ],
  ['bind a 4, widen a, narrow b, bind b 6', 'ok, ok, ok, EADDRNOTAVAIL'],
  ['bind a A, listen a, narrow a', 'ok, ok, EINVAL'],
  ['share a, bind a A, bind b A', 'ok, ok, EADDRINUSE'],
  ['share b, bind a A, bind b A', 'ok, ok, EADDRINUSE'],
  ['share a, bind a A, listen a, share b, bind b A', 'ok, ok, ok, ok, EADDRINUSE'],
  ['share a, share b, bind a A, bind b A, listen a', 'ok, ok, ok, ok, EADDRINUSE'],
  [
    'share a, share b, bind a A, bind b A, listen a, destroy b, listen a',
    'ok, ok, ok, ok, EADDRINUSE, ok, ok',
  ],
  ['share a, share b, bind a A, bind b A, destroy a, listen b', 'ok, ok, ok, ok, ok, ok'],
  ['share a, share b, bind a A, bind b 4, listen a', 'ok, ok, ok, ok, EADDRNOTAVAIL'],
  ['share a, share b, bind a A, bind b 4, listen b', 'ok, ok, ok, ok, EADDRNOTAVAIL'],
  ['share a, share b, bind a A, bind b B, listen a, listen b', 'ok, ok, ok, ok, ok, ok'],
  ['share a, share b, bind a 4, bind b 6, listen a', 'ok, ok, ok, ok, EADDRNOTAVAIL'],
  ['share a, share b, bind a A, bind b C, listen a, listen b', 'ok, ok, ok, ok, ok, ok'],
  ['bind a A, share a, share b, bind b A, listen b', 'ok, ok, ok, ok, EADDRINUSE'],
  ['bind a A, share a, unshare a', 'ok, ok, EINVAL'],
  ['share a, unshare a, bind a A, share b, bind b A', 'ok, ok, ok, ok, EADDRINUSE'],
  ['share a, bind a A, unshare a', 'ok, ok, EINVAL'],
  ['bind a A, listen a, share a', 'ok, ok, EINVAL'],
  ['bind a A, listen a, unshare a', 'ok, ok, EINVAL'],
  ['share a, bind a A, listen a, unshare a', 'ok, ok, ok, EINVAL'],
  ['share a, bind a A, listen a, share a', 'ok, ok, ok, EINVAL'],
  ['share a, share b, share c, bind a A, bind b A, bind c A', 'ok, ok, ok, ok, ok, ok'],
  ['bind a A, listen a, bind u A, listen u', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['bind u A, bind v A', 'ok, EADDRINUSE'],
  ['bind u A, listen u, bind a A, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['bind u 4, bind a 4, bind i 4', 'ok, ok, ok'],
  ['bind a A, bind i A, listen a, listen i', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['bind i A, bind j A', 'ok, EADDRINUSE'],
  ['bind a A:0, bind b A:0', 'ok, ok'],
  ['bind a A:0, bind b A:a', 'ok, EADDRINUSE'],
  ['bind a A:0, bind b B:a', 'ok, ok'],
  ['bind a 4:0, bind b A:a', 'ok, EADDRNOTAVAIL'],
  ['bind a 4:0, bind b 6:a', 'ok, EADDRNOTAVAIL'],
  ['bind a A:0, listen a, bind b A:a', 'ok, ok, EADDRINUSE'],
  ['share a, share b, bind a A:0, bind b A:a', 'ok, ok, ok, ok'],
  ['listen a, bind b 4:a', 'ok, EADDRNOTAVAIL'],
  ['listen a, bind b 6:a', 'ok, EADDRNOTAVAIL'],
  ['listen a, bind b A:a', 'ok, EADDRNOTAVAIL'],
  ['listen a, listen b', 'ok, ok'],
  ['connect a A:0, bind b A:a', 'ok, EADDRINUSE'],
  ['connect a A:0, bind b 4:a', 'ok, EADDRNOTAVAIL'],
  ['bind a A, connect a B, bind b A', 'ok, ok, EADDRINUSE'],
  ['bind a A, connect a B, bind b 4', 'ok, ok, EADDRNOTAVAIL'],
  ['bind a 4, connect a A, bind b B', 'ok, ok, ok'],
  ['bind a 4, connect a A, bind b A', 'ok, ok, EADDRINUSE'],
  ['bind a 4, connect a A, bind b 4', 'ok, ok, EADDRNOTAVAIL'],
  ['share a, share b, bind a A, bind b A, connect a B, connect b B', 'ok, ok, ok, ok, ok, ok'],
  ['bind a A, bind a B', 'ok, EINVAL'],
  ['bind a A, bind b A, bind b B', 'ok, EADDRINUSE, ok'],
  ['bind a A, bind b A, destroy a, bind b A', 'ok, EADDRINUSE, ok, ok'],
  ['bind a A, listen a, destroy a, bind b A, listen b', 'ok, ok, ok, ok, ok'],
  ['bind a A, listen a, destroy a, bind b 4, listen b', 'ok, ok, ok, ok, ok'],
  ['bind a A, listen a, destroy a, bind b B, listen b', 'ok, ok, ok, ok, ok'],
  ['bind a A, listen a, listen a', 'ok, ok, EINVAL'],
  ['bind a 4, listen a, destroy a, bind b 6, listen b', 'ok, ok, ok, ok, ok'],
  ['bind a 4, destroy a, bind b 4', 'ok, ok, ok'],
  ['bind l A:0, listen l, meet a l, bind b A:a', 'ok, ok, ok, EADDRINUSE'],
  ['bind l A:0, listen l, bind a A, meet a l, bind b 4', 'ok, ok, ok, ok, EADDRNOTAVAIL'],
  ['bind l A:0, listen l, bind a 4, meet a l, bind b B', 'ok, ok, ok, ok, ok'],
  ['bind l A:0, listen l, bind a A, meet a l, bind b B, listen b', 'ok, ok, ok, ok, ok, ok'],
  ['bind l A:0, listen l, bind a A, meet a l, destroy a, bind b A', 'ok, ok, ok, ok, ok, ok'],
  ['bind l A, listen l, meet a l, destroy l, bind b A, listen b', 'ok, ok, ok, ok, ok, ok'],
  ['bind l A, listen l, meet a l, destroy l, bind b 4, listen b', 'ok, ok, ok, ok, ok, ok'],
  ['hold T A, bind a A, listen a', 'ok, ok, ok'],
  ['hold T A, serve T, bind a A, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['hold T A, serve T, bind a A, close T, listen a', 'ok, ok, ok, ok, ok'],
  ['hold T A, serve T, bind a B, listen a', 'ok, ok, ok, ok'],
  ['hold T A, serve T, bind a 4, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['hold T 4, serve T, bind a A, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['hold T 4, serve T, bind a 4, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['hold T 6, serve T, bind a A, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['hold T 6, serve T, bind a 6, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['hold T A, serve T, bind u A, listen u', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['hold T A, serve T, bind a A, connect a B', 'ok, ok, ok, ok'],
  [
    'hold T A, serve T, share a, bind a A, listen a',
    'ok, ok, ok, ok, EADDRINUSE',
    'ok, ok, ok, ok, ok',
  ],
  ['bind a A, hold T A, serve T, listen a', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['bind a A, listen a, hold T A', 'ok, ok, EADDRINUSE', 'ok, ok, ok'],
  ['bind a A, listen a, hold T B, serve T', 'ok, ok, ok, ok'],
  ['bind a 4, listen a, hold T A', 'ok, ok, EADDRINUSE', 'ok, ok, ok'],
  ['bind a 4, listen a, hold T 4', 'ok, ok, EADDRINUSE', 'ok, ok, ok'],
  ['share a, bind a A, listen a, hold T A', 'ok, ok, ok, EADDRINUSE', 'ok, ok, ok, ok'],
  ['bind a A, listen a, destroy a, hold T A, serve T', 'ok, ok, ok, ok, ok'],
  ['bind o 4', 'ok'],
  ['bind o C', 'EINVAL'],
  ['bind o 4, listen o', 'ok, ok'],
  ['connect o A', 'EINVAL'],
  ['bind o 4, connect o A', 'ok, EINVAL'],
];

/** Actual or expected output of a case on a device of this transport. */
type Outcomes = Readonly<Record<string, string>>;

/** The outcomes of a kernel's driver. */
export function kernelOutcomes(transport: DeviceTransport): Outcomes {
  return Object.fromEntries(
    CASES.map(([steps, siw, rxe]) => [steps, transport === 'roce' ? (rxe ?? siw) : siw]),
  );
}

/** The program's output. */
export function outcomesOf(output: string): Outcomes {
  const lines = output.split('\n').filter((line) => line !== '');
  return Object.fromEntries(lines.map((line) => line.split(': ') as [string, string]));
}

/** Two IPv4 addresses and one of IPv6 of a device. */
export type ClashAddresses = readonly [string, string, string];

/** The program with its cases, in a folder. */
export class BindClashes {
  readonly #program: string;
  readonly #cases: string;

  constructor(folder: string) {
    this.#program = compileProgram('bind-clashes', ['-lrdmacm'], join(folder, 'bind-clashes'));
    this.#cases = join(folder, 'bind-clashes.cases');
    writeFileSync(this.#cases, CASES.map(([steps]) => `${steps}\n`).join(''));
  }

  /** The shell command. Each case has its own port, from `port` up. */
  command(addresses: ClashAddresses, port: number): string {
    const words = [this.#program, ...addresses, String(port)].map(shellWord);
    return `${words.join(' ')} <${shellWord(this.#cases)}`;
  }
}
