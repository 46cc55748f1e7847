/**
 * The choices of Linux's siw that a guest can make.
 *
 * In the kernel's source they are constants. `exposeSiwParameters` turns each into a module
 * parameter with the constant as its default, so that one build of siw can play every peer that
 * the tests need; `moduleParameters` names the values to load it with, or to set later in
 * /sys/module/siw/parameters.
 */
import assert from 'node:assert/strict';

/** siw's settings for later connections; the defaults are those of the kernel's own siw. */
export interface SiwParameters {
  /** MPA revision of the Requests it sends (2). */
  readonly mpaVersion?: 1 | 2;
  /** Ask for CRCs (false). */
  readonly crcRequired?: boolean;
  /** With `crcRequired` false, refuse a peer that asks for CRCs (false). */
  readonly crcStrict?: boolean;
  /** Offer a ready-to-receive indication, RFC 6581 §4 (false). */
  readonly peerToPeer?: boolean;
  /** Which ready-to-receive FPDUs to offer: 0x8000 a Write, 0x4000 a Read (both, 0xc000). */
  readonly rtrKinds?: number;
  /** Raise the IRD to the peer's request (true). */
  readonly relaxedIrd?: boolean;
  /** Offer FPDUs that span TCP segments, with a reserved flag (false). */
  readonly tryGso?: boolean;
  /** Send from the program's own pages where it can (true). */
  readonly zeroCopy?: boolean;
}

interface Exposure {
  /** File of the driver that holds the declaration. */
  readonly file: 'siw_main.c' | 'siw_cm.c';
  /** Name of the variable in the driver, and of the parameter. */
  readonly variable: string;
  /** Type as module_param() spells it. */
  readonly type: 'bool' | 'byte' | 'ushort';
  /** The whole declaration, and what takes its place. */
  readonly declaration: RegExp;
  readonly replacement: string;
}

function constantInMain(variable: string): Exposure {
  return {
    file: 'siw_main.c',
    variable,
    type: 'bool',
    declaration: new RegExp(`^const bool ${variable}( = true|);`, 'm'),
    replacement: `bool ${variable}$1;`,
  };
}

const EXPOSURES: { readonly [Name in keyof Required<SiwParameters>]: Exposure } = {
  mpaVersion: {
    file: 'siw_main.c',
    variable: 'mpa_version',
    type: 'byte',
    declaration: /^(u_char mpa_version = \w+;)/m,
    replacement: '$1',
  },
  crcRequired: constantInMain('mpa_crc_required'),
  crcStrict: constantInMain('mpa_crc_strict'),
  peerToPeer: constantInMain('peer_to_peer'),
  tryGso: constantInMain('try_gso'),
  zeroCopy: constantInMain('zcopy_tx'),
  relaxedIrd: {
    file: 'siw_cm.c',
    variable: 'relaxed_ird_negotiation',
    type: 'bool',
    declaration: /^static const bool relaxed_ird_negotiation = true;/m,
    replacement: 'static bool relaxed_ird_negotiation = true;',
  },
  rtrKinds: {
    file: 'siw_cm.c',
    variable: 'rtr_type',
    type: 'ushort',
    declaration: /^static __be16 rtr_type = [^;]*;/m,
    // A parameter is in the processor's byte order; where siw uses it, it is put in the wire's.
    replacement: 'static ushort rtr_type = 0xc000;',
  },
};

/** Uses of a variable that its new declaration breaks. */
const ADAPTATIONS = [
  { file: 'siw_cm.c', from: 'v2_ctrl.ord |= rtr_type;', to: 'v2_ctrl.ord |= htons(rtr_type);' },
] as const;

function replaceOnce(source: string, from: RegExp | string, to: string): string {
  assert(source.split(from).length > 1, `siw's source has changed: no ${String(from)}`);
  return source.replace(from, to);
}

/**
 * Rewrites the driver's sources (file name to text) so that every choice is a parameter.
 * Throws when a declaration is not found: the kernel's source has changed.
 */
export function exposeSiwParameters(sources: ReadonlyMap<string, string>): Map<string, string> {
  const result = new Map(sources);
  const edit = (file: string, change: (text: string) => string): void => {
    const text = result.get(file);
    assert(text !== undefined, `siw's source has no ${file}`);
    result.set(file, change(text));
  };
  for (const { file, variable, type, declaration, replacement } of Object.values(EXPOSURES)) {
    const parameter = `module_param(${variable}, ${type}, 0644);`;
    edit(file, (text) => replaceOnce(text, declaration, `${replacement}\n${parameter}`));
    if (file === 'siw_main.c' && type === 'bool') {
      edit('siw.h', (text) =>
        text.replace(`extern const bool ${variable};`, `extern bool ${variable};`),
      );
    }
  }
  for (const { file, from, to } of ADAPTATIONS) edit(file, (text) => replaceOnce(text, from, to));
  return result;
}

/** The parameters as siw names them, each `name=value`. */
export function moduleParameters(parameters: SiwParameters): string[] {
  return Object.entries(parameters).map(([name, value]: [string, boolean | number]) => {
    const { variable } = EXPOSURES[name as keyof SiwParameters];
    return `${variable}=${Number(value)}`;
  });
}
