/** `iwarpd doctor`: every prerequisite, its state, and how to mend it. */
import { CHECKS, type Check, type Finding } from './doctor-checks.ts';
import { DEVICE_CHECKS } from './doctor-devices.ts';
import { RDMA_CORE_CHECKS } from './doctor-rdma-core.ts';
import { CommandFailure, failureText } from './failure.ts';
import { type Output, printJson } from './output.ts';

/** A finding with the name of its check. */
export interface NamedFinding extends Finding {
  readonly name: string;
}

/** What `--json` prints. */
export interface DoctorReport {
  readonly format: 1;
  /** True when nothing is broken; warnings do not count. */
  readonly healthy: boolean;
  readonly checks: readonly NamedFinding[];
}

/** Examines the host and the daemon at `socketPath`. CommandFailure when something is broken. */
export async function runDoctor(
  options: { readonly socketPath: string; readonly json: boolean },
  output: Output,
): Promise<void> {
  const checks = [...CHECKS, ...RDMA_CORE_CHECKS, ...DEVICE_CHECKS];
  const report = await examine(options.socketPath, checks);
  if (options.json) printJson(output, report);
  else for (const line of doctorLines(report)) output.line(line);
  const broken = report.checks.filter((check) => check.state === 'broken');
  if (broken.length > 0) {
    throw new CommandFailure(`broken: ${broken.map((check) => check.name).join(', ')}; see above`);
  }
}

/** Runs the checks one after the other; a check that throws is broken. */
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
    format: 1,
    healthy: findings.every((finding) => finding.state !== 'broken'),
    checks: findings,
  };
}

/** The report for people: a line for each check, and one for its mend. */
export function doctorLines(report: DoctorReport): string[] {
  const width = Math.max(...report.checks.map((check) => check.name.length));
  return report.checks.flatMap((check) => {
    const head = `${check.state.padEnd(6)}  ${check.name.padEnd(width)}  `;
    const lines = [`${head}${check.text}`];
    if (check.mend !== undefined) lines.push(`${' '.repeat(head.length)}mend: ${check.mend}`);
    return lines;
  });
}
