/**
 * The differences between providers of rdma-core: the attributes of a device, and the private parts
 * of commands, which follow the parts that all providers share. Everything else about uverbs is the
 * same for every persona.
 */

/** Sizes of the private parts of a command, in bytes. */
export interface PrivateBytes {
  readonly request: number;
  readonly response: number;
}

/** A new queue, for the private part of the reply. */
interface NewQueue {
  readonly handle: number;
  readonly entries: number;
  /** Offset at which the program maps the ring. */
  readonly key: number;
}

/** A new queue pair, for the private part of the reply. */
interface NewQueuePair {
  readonly qpn: number;
  readonly sendEntries: number;
  readonly receiveEntries: number;
  readonly sendKey: number;
  /** 0 with a shared receive queue. */
  readonly receiveKey: number;
}

/** See the module's comment. Functions get only the private part, at offset 0. */
export interface Persona {
  /** `enum rdma_driver_id`: rdma-core selects the provider by it. */
  readonly driverId: number;
  /** Version of the provider's ABI. */
  readonly abiVersion: number;
  /** `enum rdma_node_type`, as a number and as sysfs spells it. */
  readonly nodeType: { readonly number: number; readonly name: string };
  /** The name that netlink reports. */
  readonly protocol: string;
  readonly description: string;
  /** `enum ib_device_cap_flags`. */
  readonly deviceCapFlags: number;
  /** `enum ib_port_capability_mask_bits`. */
  readonly portCapFlags: number;
  /** Ring key that must not be used; undefined if any will do. */
  readonly reservedRingKey: number | undefined;
  /** Private bytes by command number; a missing command has none. */
  readonly privateBytes: Readonly<Partial<Record<number, PrivateBytes>>>;
  /** The key of a registration: the low 8 bits of its STag. */
  readonly regionKey: (request: DataView) => number;
  readonly putContext: (reply: DataView, deviceIndex: number) => void;
  readonly putRegion: (reply: DataView, stag: number) => void;
  readonly putCQ: (reply: DataView, queue: NewQueue) => void;
  readonly putSRQ: (reply: DataView, queue: NewQueue) => void;
  readonly putQP: (reply: DataView, pair: NewQueuePair) => void;
}
