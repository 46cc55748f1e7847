/** The numbers by which nldev names objects: those of a kind increase and are never reused. */

/** Kinds of objects that have such numbers; queue pairs have their own. */
type NumberedKind = 'pd' | 'cq' | 'cm_id' | 'mr' | 'ctx' | 'srq';

/** The numbers of one device. An object gets its number when it is first asked for. */
export class ResourceNumbers {
  readonly #kinds = new Map<
    NumberedKind,
    { next: number; readonly given: WeakMap<object, number> }
  >();

  /** The number of an object. */
  of(kind: NumberedKind, object: object): number {
    let numbers = this.#kinds.get(kind);
    if (numbers === undefined) {
      numbers = { next: 0, given: new WeakMap() };
      this.#kinds.set(kind, numbers);
    }
    const known = numbers.given.get(object);
    if (known !== undefined) return known;
    const number = numbers.next;
    numbers.next += 1;
    numbers.given.set(object, number);
    return number;
  }
}
