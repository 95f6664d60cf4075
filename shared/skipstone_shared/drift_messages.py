"""``orchestration.DriftReport`` <-> messages of ``skipstone/orchestrator/v1``."""

from __future__ import annotations

from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_shared.orchestration import DriftReport, DriftTier


def drift_report_to_message(report: DriftReport) -> orchestrator_pb2.DriftReport:
    """The message of what a drift guard has measured and done."""
    return orchestrator_pb2.DriftReport(
        max_drift=report.max_drift,
        tiers=[
            orchestrator_pb2.DriftTier(
                tier=tier.tier,
                audits=tier.audits,
                closed=tier.closed,
                mean=tier.mean,
                bound=tier.bound,
            )
            for tier in report.tiers
        ],
        audits=report.audits,
        audit_steps=report.audit_steps,
        queued_audits=report.queued_audits,
        quarantined_donors=report.quarantined_donors,
    )


def drift_report_from_message(message: orchestrator_pb2.DriftReport) -> DriftReport:
    """What a message tells of a drift guard."""
    return DriftReport(
        max_drift=message.max_drift,
        tiers=tuple(
            DriftTier(
                tier=tier.tier,
                audits=tier.audits,
                closed=tier.closed,
                mean=tier.mean if tier.HasField("mean") else None,
                bound=tier.bound if tier.HasField("bound") else None,
            )
            for tier in message.tiers
        ),
        audits=dict(message.audits),
        audit_steps=message.audit_steps,
        queued_audits=message.queued_audits,
        quarantined_donors=message.quarantined_donors,
    )
