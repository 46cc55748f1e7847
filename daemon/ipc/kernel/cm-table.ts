/** The numbers of the connection ids of all programs: one namespace, as in the kernel. */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { RnicHost } from '../../adapter/rnic-host.ts';
import type { CmContext } from './cm-context.ts';

/** librdmacm indexes ids by 16 bits of their number. */
const NUMBERS = 65_536;

/** Contexts by number; the lowest free number is given first, from 0. */
export class CmTable {
  readonly #contexts: (CmContext | undefined)[] = [];
  /** No free number is below it. */
  #lowest = 0;

  static readonly #tables = new WeakMap<RnicHost, CmTable>();

  /** The table of a host. */
  static of(host: RnicHost): CmTable {
    const known = CmTable.#tables.get(host);
    if (known !== undefined) return known;
    const table = new CmTable();
    CmTable.#tables.set(host, table);
    return table;
  }

  /** Enters the context that `make` builds with its number. ENOMEM when no number is free. */
  add(make: (number: number) => CmContext): CmContext {
    while (this.#contexts[this.#lowest] !== undefined) this.#lowest += 1;
    if (this.#lowest >= NUMBERS) throw new VerbsError('ENOMEM', 'no connection id is free');
    const context = make(this.#lowest);
    this.#contexts[this.#lowest] = context;
    return context;
  }

  /** The context of a number, if there is one. */
  find(number: number): CmContext | undefined {
    return this.#contexts[number];
  }

  remove(context: CmContext): void {
    this.#contexts[context.number] = undefined;
    this.#lowest = Math.min(this.#lowest, context.number);
  }
}
