/** Address handles: destinations of datagrams, which work requests name by a number. */
import { VerbsError } from '#contract/verbs/errors';
import type { PD } from './protection-domain.ts';
import { type AddressVector, checkAddressVector, type PortAddresses } from './qp-attributes.ts';

/** Address handles of a device. Each client has as many as rxe reports; see its quotas. */
const HANDLES_MAX = 1_048_576;

/** An address handle. */
export class AH {
  readonly pd: PD;
  /** Not 0, which means to rxe's provider that the work request has the address itself. */
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

  /** The destination, as the wire takes it. */
  get dgid(): Uint8Array {
    return this.vector.dgid;
  }

  /** From here on, datagrams to it fail. A second call does nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.pd.members -= 1;
    this.#onClose();
  }
}

/** All address handles of a device. */
export class AddressHandles {
  readonly #handles = new Map<number, AH>();
  #last = 0;

  /** Errors as for `checkAddressVector`; ENOMEM when the device has no more. */
  create(pd: PD, vector: AddressVector, port: PortAddresses): AH {
    checkAddressVector(vector, port);
    if (this.#handles.size >= HANDLES_MAX) {
      throw new VerbsError('ENOMEM', `the device has no more than ${HANDLES_MAX} address handles`);
    }
    // A released number is not used again soon.
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
