/** Address handles: destinations of datagrams. Work requests name them by number. */
import { VerbsError } from '#contract/verbs/errors';
import type { PD } from './memory/protection-domain.ts';
import { type AddressVector, checkAddressVector, type PortAddresses } from './qp-attributes.ts';

/** Limit per device; the quotas limit each client to what rxe reports. */
const HANDLES_MAX = 1_048_576;

export class AH {
  readonly pd: PD;
  /** Never 0: rxe's provider reads 0 as "the address is in the work request". */
  readonly number: number;
  readonly vector: AddressVector;
  readonly #onClose: () => void;
  #closed = false;

  constructor(pd: PD, number: number, vector: AddressVector, onClose: () => void) {
    this.pd = pd;
    this.number = number;
    this.vector = vector;
    this.#onClose = onClose;
    pd.members += 1;
  }

  get dgid(): Uint8Array {
    return this.vector.dgid;
  }

  /** Datagrams to it fail from now on. A second call does nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.pd.members -= 1;
    this.#onClose();
  }
}

export class AddressHandles {
  readonly #handles = new Map<number, AH>();
  #last = 0;

  /** Fails as `checkAddressVector` does, and with ENOMEM at the device's limit. */
  create(pd: PD, vector: AddressVector, port: PortAddresses): AH {
    checkAddressVector(vector, port);
    if (this.#handles.size >= HANDLES_MAX) {
      throw new VerbsError('ENOMEM', `the device has no more than ${HANDLES_MAX} address handles`);
    }
    // Reuse a released number as late as possible.
    do this.#last = (this.#last % HANDLES_MAX) + 1;
    while (this.#handles.has(this.#last));
    const number = this.#last;
    const handle = new AH(pd, number, { ...vector, dgid: vector.dgid.slice() }, () => {
      this.#handles.delete(number);
    });
    this.#handles.set(number, handle);
    return handle;
  }

  /** The handle of this number, if it belongs to `pd`. */
  find(number: number, pd: PD): AH | undefined {
    const handle = this.#handles.get(number);
    return handle?.pd === pd ? handle : undefined;
  }
}
