/** An opened device as used by the objects made from it. */
import type { DeviceAttributes } from '#contract/verbs/attributes';
import type { NativeDeviceInfo } from './device-list.ts';
import type { DeviceTraits } from './device-traits.ts';
import type { Libraries } from './libraries.ts';
import type { NativeObject } from './native-object.ts';

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

/** Services of a protection domain for its objects. */
export interface OpenPD extends NativeObject {
  readonly device: OpenNativeDevice;
}
