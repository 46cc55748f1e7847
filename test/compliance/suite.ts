import { describe } from 'vitest';
import { connectionSuite } from './connections.ts';
import { faultSuite } from './faults.ts';
import type { ProviderFixture } from './fixture.ts';
import { notificationSuite } from './notifications.ts';
import { objectSuite } from './objects.ts';
import { transferSuite } from './transfers.ts';

/** Everything that every provider has to do alike. */
export function complianceSuite(name: string, fixture: ProviderFixture): void {
  describe(`${name}: objects`, () => objectSuite(fixture));
  describe(`${name}: connections`, () => connectionSuite(fixture));
  describe(`${name}: transfers`, () => transferSuite(fixture));
  describe(`${name}: notifications`, () => notificationSuite(fixture));
  describe(`${name}: faults`, () => faultSuite(fixture));
}
