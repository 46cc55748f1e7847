/** How an adapter identifies itself to programs. */

/** Names and numbers of an adapter; they say nothing about what it can do. */
export interface AdapterIdentity {
  /** As its PCI function has them. */
  readonly pci: {
    readonly vendor: number;
    readonly device: number;
    readonly subsystemVendor: number;
    readonly subsystemDevice: number;
  };
  /** As `ibv_query_device` reports it. */
  readonly vendorId: number;
  /** As `ibv_query_device` reports it. */
  readonly vendorPartId: number;
  /** MAJOR.MINOR.PATCH */
  readonly firmware: string;
  /** The file `hca_type` of sysfs. */
  readonly hcaType: string;
  /** The file `board_id` of sysfs. */
  readonly boardId: string;
}

/** Rails without another identity: verbs report what Linux's rxe does. */
export const IWARPD_IDENTITY: AdapterIdentity = {
  // 'iw' in ASCII: not assigned by the PCI-SIG.
  pci: { vendor: 0x6977, device: 1, subsystemVendor: 0x6977, subsystemDevice: 1 },
  vendorId: 0xff_ffff,
  vendorPartId: 0,
  firmware: '0.0.0',
  hcaType: 'iwarpd',
  boardId: 'iwarpd',
};

/** Identities that a configuration may choose, by name. */
export const ADAPTERS = {
  /** A ConnectX-7 with one port of 400 Gb/s (MCX75310AAS-NEAT). */
  connectx7: {
    pci: { vendor: 0x15b3, device: 0x1021, subsystemVendor: 0x15b3, subsystemDevice: 0x0023 },
    vendorId: 0x02c9,
    vendorPartId: 0x1021,
    firmware: '28.43.1014',
    hcaType: 'MT4129',
    boardId: 'MT_0000000838',
  },
} as const satisfies Readonly<Record<string, AdapterIdentity>>;

/** The name of an adapter. */
export type AdapterName = keyof typeof ADAPTERS;
