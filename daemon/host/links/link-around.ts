/**
 * A link around an inner link: passes everything on in both directions. Subclasses override what they change.
 */
import type { Delivery, Transmit } from '#base/transmit';
import { type Link, type LinkUser, NO_USER } from './link.ts';

/** It is the user of the inner link. */
export class LinkAround implements Link, LinkUser {
  readonly inner: Link;
  user: LinkUser = NO_USER;

  constructor(inner: Link) {
    this.inner = inner;
    inner.user = this;
  }

  // Link

  get localAddress(): string {
    return this.inner.localAddress;
  }

  get localPort(): number {
    return this.inner.localPort;
  }

  get remoteAddress(): string {
    return this.inner.remoteAddress;
  }

  get remotePort(): number {
    return this.inner.remotePort;
  }

  get carriesMessages(): boolean {
    return this.inner.carriesMessages === true;
  }

  get faithful(): boolean {
    return this.inner.faithful === true;
  }

  get unsegmented(): boolean {
    return this.inner.unsegmented === true;
  }

  get lends(): boolean {
    return this.inner.lends === true;
  }

  get segmentAligned(): boolean {
    return this.inner.segmentAligned;
  }

  set segmentAligned(aligned: boolean) {
    this.inner.segmentAligned = aligned;
  }

  get congested(): boolean {
    return this.inner.congested;
  }

  get writable(): boolean {
    return this.inner.writable;
  }

  get heldBytes(): number {
    return this.inner.heldBytes ?? 0;
  }

  emssBytes(): number {
    return this.inner.emssBytes();
  }

  write(transmit: Transmit): number {
    return this.inner.write(transmit);
  }

  keepAlive(idleSeconds: number, intervalSeconds: number, probes: number): void {
    this.inner.keepAlive?.(idleSeconds, intervalSeconds, probes);
  }

  pauseReading(): void {
    this.inner.pauseReading();
  }

  resumeReading(): void {
    this.inner.resumeReading();
  }

  finish(): void {
    this.inner.finish();
  }

  close(): void {
    this.inner.close();
  }

  reset(): void {
    this.inner.reset();
  }

  assertInvariants(): void {
    this.inner.assertInvariants?.();
  }

  // LinkUser

  handleBytes(bytes: Uint8Array, delivery?: Delivery): void {
    this.user.handleBytes(bytes, delivery);
  }

  seal(bytes: Uint8Array): void {
    this.user.seal?.(bytes);
  }

  get takesLent(): boolean {
    return this.user.takesLent === true;
  }

  get inspectsInput(): boolean {
    return this.user.inspectsInput === true;
  }

  handleFlushed(bytes: number): void {
    this.user.handleFlushed(bytes);
  }

  handleAcknowledged(): void {
    this.user.handleAcknowledged?.();
  }

  handlePathChanged(): void {
    this.user.handlePathChanged?.();
  }

  handlePeerClosed(): void {
    this.user.handlePeerClosed();
  }

  handleClosed(errorCode: string | undefined): void {
    this.user.handleClosed(errorCode);
  }

  get cutOutputBytes(): number {
    return this.user.cutOutputBytes ?? 0;
  }

  get heldInput(): Uint8Array | undefined {
    return this.user.heldInput;
  }

  get queuePair(): LinkUser['queuePair'] {
    return this.user.queuePair;
  }
}
