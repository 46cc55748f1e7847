/** Finds the IP header of a captured packet, and its addresses as text (RFC 791, RFC 8200). */

/** LINKTYPE_ values (https://www.tcpdump.org/linktypes.html) that contain IP packets. */
const LinkType = {
  null: 0,
  ethernet: 1,
  raw: 101,
  loop: 108,
  linuxCooked: 113,
  ipv4: 228,
  ipv6: 229,
  linuxCooked2: 276,
} as const;

const ETHER_TYPE_IPV4 = 0x0800;
const ETHER_TYPE_IPV6 = 0x86dd;
const VLAN_ETHER_TYPES: readonly number[] = [0x8100, 0x88a8, 0x9100];

/** Offset of the IP header; undefined if there is none. */
export function ipStart(linkType: number, view: DataView): number | undefined {
  switch (linkType) {
    case LinkType.ethernet:
      return afterEtherType(view, 12);
    case LinkType.linuxCooked:
      return afterEtherType(view, 14);
    case LinkType.linuxCooked2:
      return view.byteLength >= 20 && isIp(view.getUint16(0)) ? 20 : undefined;
    case LinkType.null:
    case LinkType.loop:
      return 4;
    case LinkType.raw:
    case LinkType.ipv4:
    case LinkType.ipv6:
      return 0;
    default:
      return undefined;
  }
}

/** Offset of IP after an EtherType and any VLAN tags before it. */
function afterEtherType(view: DataView, typeAt: number): number | undefined {
  let at = typeAt;
  while (at + 2 <= view.byteLength) {
    const type = view.getUint16(at);
    if (isIp(type)) return at + 2;
    if (!VLAN_ETHER_TYPES.includes(type)) return undefined;
    at += 4;
  }
  return undefined;
}

function isIp(etherType: number): boolean {
  return etherType === ETHER_TYPE_IPV4 || etherType === ETHER_TYPE_IPV6;
}

export function dotted(view: DataView, at: number): string {
  return [0, 1, 2, 3].map((index) => view.getUint8(at + index)).join('.');
}

/** An IPv6 address in its canonical form (RFC 5952). */
export function colons(view: DataView, at: number): string {
  const groups = [0, 2, 4, 6, 8, 10, 12, 14].map((index) => view.getUint16(at + index));
  const text = groups.map((group) => group.toString(16)).join(':');
  const runs = [...text.matchAll(/\b0(?::0\b)+/g)];
  const [longest] = runs.toSorted((one, other) => other[0].length - one[0].length);
  if (longest === undefined) return text;
  const head = text.slice(0, longest.index).replace(/:$/, '');
  return `${head}::${text.slice(longest.index + longest[0].length).replace(/^:/, '')}`;
}
