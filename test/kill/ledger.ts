/** Counts of what an end of a conversation did, in a file that outlives a killed process. */
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';

/** Message counts of one end. */
export interface Account {
  /** Sends that completed with success. */
  readonly sent: number;
  /** Messages received, each with its payload in place. */
  readonly received: number;
}

const ACCOUNT_BYTES = 8;

/** Writes an account. */
export class Ledger implements Account {
  sent = 0;
  received = 0;
  readonly #fd: number;
  readonly #fields = new DataView(new ArrayBuffer(ACCOUNT_BYTES));

  constructor(path: string) {
    this.#fd = openSync(path, 'w');
    this.write();
  }

  /** Stores both numbers for `readAccount`; they survive this process. */
  write(): void {
    this.#fields.setUint32(0, this.sent, true);
    this.#fields.setUint32(4, this.received, true);
    writeSync(this.#fd, this.#fields, 0, ACCOUNT_BYTES, 0);
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** Reads the account of a process, even a dead one; undefined if it wrote none. */
export function readAccount(path: string): Account | undefined {
  try {
    const bytes = readFileSync(path);
    if (bytes.length < ACCOUNT_BYTES) return undefined;
    return { sent: bytes.readUInt32LE(0), received: bytes.readUInt32LE(4) };
  } catch {
    return undefined;
  }
}
