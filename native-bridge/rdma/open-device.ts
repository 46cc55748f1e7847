/** An opened device as used by the objects made from it, and what these have in common. */
import type { DeviceAttributes } from '#contract/verbs/attributes';
import type { NativeDeviceInfo } from './device-list.ts';
import type { DeviceTraits } from './device-traits.ts';
import { checkResult, type Libraries, lastFailure } from './libraries.ts';
import { NativeObject } from './native-object.ts';

/** The verbs that are inline in the headers: called through the context's pointers. */
export interface HotVerbs {
  pollCQ(cq: number, max: number, completions: number): number;
  requestNotify(cq: number, solicitedOnly: number): number;
  postSend(qp: number, list: number, bad: number): number;
  postRecv(qp: number, list: number, bad: number): number;
  postSrqRecv(srq: number, list: number, bad: number): number;
}

/** Services of a device for its objects. */
export interface OpenNativeDevice extends NativeObject {
  readonly libraries: Libraries;
  readonly info: NativeDeviceInfo;
  readonly traits: DeviceTraits;
  readonly attributes: DeviceAttributes;
  readonly hot: HotVerbs;
  /** Objects by address, for events that name one. */
  readonly objects: Map<number, NativeObject>;
}

type VerbsCall = keyof Libraries['verbs'];

/** Creates an object in the library and returns its pointer. Throws the error in errno. */
export function create(
  { libraries, subject }: OpenNativeDevice,
  call: VerbsCall,
  ...parameters: number[]
): number {
  const pointer = libraries.verbs[call](...parameters);
  if (pointer === 0) throw lastFailure(call, subject);
  return pointer;
}

/** An object made from a device. `name`: for messages. */
export abstract class NativeDeviceObject extends NativeObject {
  readonly device: OpenNativeDevice;

  constructor(
    device: OpenNativeDevice,
    name: string,
    pointer: number,
    parents: readonly NativeObject[] = [device],
  ) {
    super(`the ${name} of ${device.info.name}`, pointer, parents);
    this.device = device;
    device.objects.set(pointer, this);
  }

  /** Calls the library. Throws the errno number that it returns. */
  protected call(call: VerbsCall, ...parameters: number[]): void {
    checkResult(call, this.subject, this.device.libraries.verbs[call](...parameters));
  }

  protected override released(pointer: number): void {
    this.device.objects.delete(pointer);
  }
}
