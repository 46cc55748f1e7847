/** `iwarpd doctor`: checks the setup, or a program, and explains how to fix what is missing. */
import { CommandFailure, failureText } from '#daemon/console/failure';
import { type Color, type Output, printJson } from '#daemon/console/output';
import { CHECKS } from './checks.ts';
import { DEVICE_CHECKS } from './devices.ts';
import type { Check, Finding } from './finding.ts';
import { examinedProgram, programChecks } from './program.ts';
import { RDMA_CORE_CHECKS } from './rdma-core.ts';

/** A finding with the name of its check. */
export interface NamedFinding extends Finding {
  readonly name: string;
}

/** The output of `--json`. */
export interface DoctorReport {
  /** 2: `fix` replaced `mend`. */
  readonly format: 2;
  /** True when nothing is broken; warnings do not count. */
  readonly healthy: boolean;
  readonly checks: readonly NamedFinding[];
}

interface DoctorOptions {
  readonly socketPath: string;
  readonly json: boolean;
  /** A program to check instead. */
  readonly program: string | undefined;
}

/** Checks the host and the daemon at `socketPath`, or a program. CommandFailure if something is broken. */
export async function runDoctor(options: DoctorOptions, output: Output): Promise<void> {
  const checks =
    options.program === undefined
      ? [...CHECKS, ...RDMA_CORE_CHECKS, ...DEVICE_CHECKS]
      : programChecks(examinedProgram(options.program, process.env));
  const report = await examine(options.socketPath, checks);
  if (options.json) printJson(output, report);
  else printReport(report, output);
  const broken = report.checks.filter((check) => check.state === 'broken');
  if (broken.length > 0) {
    throw new CommandFailure(`broken: ${broken.map((check) => check.name).join(', ')}; see above`);
  }
}

/** Runs the checks one after another. A check that throws counts as broken. */
export async function examine(socketPath: string, checks: readonly Check[]): Promise<DoctorReport> {
  const findings: NamedFinding[] = [];
  for (const check of checks) {
    let finding: Finding;
    try {
      finding = await check.examine({ socketPath });
    } catch (error) {
      finding = { state: 'broken', text: failureText(error) };
    }
    findings.push({ name: check.name, ...finding });
  }
  return {
    format: 2,
    healthy: findings.every((finding) => finding.state !== 'broken'),
    checks: findings,
  };
}

const COLORS: Readonly<Record<Finding['state'], Color>> = {
  ok: 'green',
  warn: 'yellow',
  broken: 'red',
  info: 'blue',
};

/** Prints the report as text, with colored states if the output has colors. */
export function printReport(report: DoctorReport, output: Output): void {
  for (const check of report.checks) {
    const [first = '', ...fixes] = checkLines(check, report);
    const { state } = check;
    if (output.colored === undefined) output.line(first);
    else output.colored(COLORS[state], state, first.slice(state.length));
    for (const line of fixes) output.line(line);
  }
}

/** The report as text: a line for each check and one for its fix. */
export function doctorLines(report: DoctorReport): string[] {
  return report.checks.flatMap((check) => checkLines(check, report));
}

function checkLines({ state, name, text, fix }: NamedFinding, { checks }: DoctorReport): string[] {
  const width = Math.max(...checks.map((check) => check.name.length));
  const head = `${state.padEnd(6)}  ${name.padEnd(width)}  `;
  return [
    `${head}${text}`,
    ...(fix === undefined ? [] : [`${' '.repeat(head.length)}fix: ${fix}`]),
  ];
}
