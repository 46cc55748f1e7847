/** A client's objects by handle, counted against its quotas. */
import { assert } from '#base/assert';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { HandleSpace } from './handle-space.ts';
import type { ObjectKind, QuotaLedger } from './quotas.ts';

interface RegisteredObject {
  readonly kind: ObjectKind;
  readonly handle: number;
}

type OfKind<Any extends RegisteredObject, K extends Any['kind']> = Extract<
  Any,
  { readonly kind: K }
>;

/** Receives objects that are added or removed, for lists of all clients' objects. */
export interface ObjectListing<Any> {
  added(object: Any): void;
  removed(object: Any): void;
}

/** All kinds share one namespace of handles. */
export class ObjectRegistry<Any extends RegisteredObject> {
  readonly #objects: HandleSpace<Any>;
  readonly #ledger: QuotaLedger;
  readonly #deviceOf: (object?: Any) => string | undefined;
  readonly #listing: ObjectListing<Any> | undefined;

  /**
   * `deviceOf` returns the device of an object, if any; called without an object, the device of all of
   * them. `listing`: default none.
   */
  constructor(
    ledger: QuotaLedger,
    firstHandle: number,
    deviceOf: (object?: Any) => string | undefined,
    listing?: ObjectListing<Any>,
  ) {
    this.#ledger = ledger;
    this.#deviceOf = deviceOf;
    this.#listing = listing;
    this.#objects = new HandleSpace(firstHandle);
  }

  get size(): number {
    return this.#objects.size;
  }

  /**
   * Adds the object that `make` returns, on `device` if given. ENOMEM beyond the quota; adds nothing
   * if `make` throws.
   */
  add<K extends Any['kind']>(
    kind: K,
    make: (handle: number) => OfKind<Any, K>,
    device = this.#deviceOf(),
  ): OfKind<Any, K> {
    this.#ledger.assertRoom(kind, device);
    const object = this.#objects.add(make);
    this.#ledger.note(kind, 1, this.#deviceOf(object));
    this.#listing?.added(object);
    return object;
  }

  /** Removes an object; the caller releases its resources. */
  remove(object: Any): void {
    if (this.#objects.find(object.handle) !== object) return;
    this.#objects.remove(object.handle);
    this.#listing?.removed(object);
    this.#ledger.note(object.kind, -1, this.#deviceOf(object));
  }

  find(handle: number): Any | undefined {
    return this.#objects.find(handle);
  }

  /** The object with a handle. ENOENT if there is none; EINVAL if it has another kind. */
  expect<K extends Any['kind']>(kind: K, handle: number): OfKind<Any, K> {
    const object = this.#objects.find(handle);
    if (object === undefined) {
      throw new VerbsError(
        'ENOENT',
        `no object of kind ${kind} has handle ${handle}: it was destroyed, or belongs to another context`,
      );
    }
    if (!isKind(object, kind)) {
      throw invalid(`handle ${handle} has kind ${object.kind}, not ${kind}`);
    }
    return object;
  }

  ofKind<K extends Any['kind']>(kind: K): OfKind<Any, K>[] {
    return this.#objects.select((object): object is OfKind<Any, K> => isKind(object, kind));
  }

  /** Recounts the objects, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.#objects.assertDeepInvariants();
    for (const object of this.#objects.values()) {
      assert(this.#objects.find(object.handle) === object, 'object filed under another handle');
    }
  }
}

function isKind<Any extends RegisteredObject, K extends Any['kind']>(
  object: Any,
  kind: K,
): object is OfKind<Any, K> {
  return object.kind === kind;
}
